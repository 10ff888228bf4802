import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { Admin } from '@platformatic/kafka';
import { startKafka } from '@twiceproof/infra/kafka';
import { kafkaSecurity, kafkaTransport } from './kafka.ts';

const directory = mkdtempSync(join(tmpdir(), 'twiceproof-security-'));
const keystore = join(directory, 'broker.p12');
const ca = join(directory, 'broker.pem');
const keytool = process.env['JAVA_HOME'] ? join(process.env['JAVA_HOME'], 'bin/keytool') : 'keytool';
const store = ['-keystore', keystore, '-storetype', 'PKCS12', '-storepass', 'changeit', '-alias', 'broker'];
const made = ['-keyalg', 'RSA', '-validity', '2', '-dname', 'CN=localhost', '-ext', 'SAN=ip:127.0.0.1,dns:localhost'];
execFileSync(keytool, ['-genkeypair', ...store, ...made], { stdio: 'pipe' });
execFileSync(keytool, ['-exportcert', '-rfc', '-file', ca, ...store], { stdio: 'pipe' });

// A broker of its own, with a second door that asks for a name and a password, by TLS.
const port = await freePort();
const cluster = await startKafka({
  brokers: 1,
  sideDoors: [{ port, advertisedPort: port }],
  settings: {
    'listener.security.protocol.map': 'PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SIDE:SASL_SSL',
    'listener.name.side.ssl.keystore.location': keystore,
    'listener.name.side.ssl.keystore.password': 'changeit',
    'listener.name.side.sasl.enabled.mechanisms': 'PLAIN',
    'listener.name.side.plain.sasl.jaas.config':
      'org.apache.kafka.common.security.plain.PlainLoginModule required user_relay="secret";',
  },
});
const admin = new Admin({ clientId: 'security', bootstrapBrokers: [cluster.bootstrap], retries: 20, retryDelay: 250 });
await admin.createTopics({ topics: ['guarded'], partitions: 1, replicas: 1 });
await admin.close();
after(async () => {
  await cluster.close();
  rmSync(directory, { recursive: true });
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port: free } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return free;
}

const login = { KAFKA_CA_FILE: ca, KAFKA_SASL_MECHANISM: 'PLAIN', KAFKA_USERNAME: 'relay', KAFKA_PASSWORD: 'secret' };

async function publishAs(env: NodeJS.ProcessEnv): Promise<string> {
  const transport = kafkaTransport({
    bootstrap: `127.0.0.1:${port}`,
    publishDeadlineMs: 5_000,
    ...kafkaSecurity(env),
  });
  try {
    const [outcome] = await transport.publisher().publish([{ topic: 'guarded', key: 'a', value: Buffer.from('1') }]);
    return 'error' in outcome! ? `${outcome.outcome} ${outcome.error.code}` : outcome!.outcome;
  } finally {
    await transport.close();
  }
}

test('who knows the certificate and the password gets in', { timeout: 60_000 }, async () => {
  assert.equal(await publishAs(login), 'acknowledged');
  const transport = kafkaTransport({ bootstrap: `127.0.0.1:${port}`, ...kafkaSecurity(login) });
  assert.ok((await transport.topicTimes!(['guarded'])).retentionMs > 0);
  await transport.close();
});

test('the wrong password is told as what it is', { timeout: 60_000 }, async () => {
  assert.equal(await publishAs({ ...login, KAFKA_PASSWORD: 'guess' }), 'refused TP_NOT_AUTHORIZED');
});

for (const [what, env] of Object.entries({
  'no password': { KAFKA_CA_FILE: ca },
  'no trust in the certificate': { ...login, KAFKA_CA_FILE: undefined, KAFKA_TLS: 'true' },
  'no TLS': { ...login, KAFKA_CA_FILE: undefined },
})) {
  test(`with ${what} nobody gets in, and it is told in time`, { timeout: 60_000 }, async () => {
    assert.match(await publishAs(env), /^(refused TP_NOT_AUTHORIZED|unknown TP_BROKER_UNREACHABLE)$/);
  });
}
