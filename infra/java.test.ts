import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { findJava } from './java.ts';
import { findKafka } from './kafka-distribution.ts';
import type { Run } from './run.ts';

const directory = mkdtempSync(join(tmpdir(), 'twiceproof-java-'));
after(() => rmSync(directory, { recursive: true }));

/** A directory for the PATH with a `java` that says it is of this version. */
function pathWithJava(version: string): string {
  const bin = join(directory, version);
  mkdirSync(bin);
  writeFileSync(join(bin, 'java'), `#!/bin/sh\necho 'openjdk version "${version}" 2020-01-01' >&2\n`);
  chmodSync(join(bin, 'java'), 0o755);
  return bin;
}

test('no Java', async () => {
  await assert.rejects(findJava({ PATH: directory }), {
    name: 'Refusal',
    message: /Kafka needs Java, and `java` does not run\.\n {2}Install a Java 17 or newer .* KAFKA_BROKERS/,
  });
  await assert.rejects(findJava({ PATH: process.env['PATH'], JAVA_HOME: directory }), /bin\/java` does not run/);
});

test('a Java that is too old is named with its version', async () => {
  for (const version of ['11.0.2', '1.8.0_392', '16']) {
    await assert.rejects(findJava({ PATH: pathWithJava(version) }), {
      name: 'Refusal',
      message: new RegExp(`Kafka needs Java 17, and \`java\` is version ${version}\\.\\n {2}Install`),
    });
  }
});

test('Java 17 and newer will do', async () => {
  for (const version of ['17.0.15', '21', '25.0.1-beta']) {
    assert.equal((await findJava({ PATH: pathWithJava(version) })).version, version);
  }
});

test('no Maven and nothing cached', async () => {
  const env = { PATH: pathWithJava('17.0.1'), TWICEPROOF_CACHE_DIR: join(directory, 'cache') };
  await assert.rejects(findKafka({ run: {} as Run, progress: () => {}, env }), {
    name: 'Refusal',
    message: /not in the cache yet, and there is no Maven to fetch it\.\n {2}Install Maven .* KAFKA_BROKERS/,
  });
});

test('a Maven that fetches other bytes than the pinned ones is not believed', async () => {
  const bin = pathWithJava('17.0.2');
  const maven =
    '#!/bin/sh\nfor a; do case "$a" in -DoutputDirectory=*) echo evil > "${a#*=}/kafka-clients-4.3.1.jar";; esac; done\n';
  writeFileSync(join(bin, 'mvn'), maven);
  chmodSync(join(bin, 'mvn'), 0o755);
  const env = { PATH: bin, TWICEPROOF_CACHE_DIR: join(directory, 'cache') };
  await assert.rejects(findKafka({ run: {} as Run, progress: () => {}, env }), {
    name: 'Refusal',
    message: /not what infra\/kafka\/jars\.sha256 lists: .*kafka-clients-4\.3\.1\.jar/,
  });
});
