import assert from 'node:assert/strict';
import { test } from 'node:test';
import { kafkaSecurity, securityProblems } from './kafka-security.ts';

test('nothing is said, and nothing is asked for', () => {
  assert.deepEqual(kafkaSecurity({}), {});
  assert.deepEqual(kafkaSecurity({ KAFKA_TLS: 'false', KAFKA_BROKERS: 'x' }), {});
});

test('TLS with what Node trusts; a name and a password', () => {
  const login = { KAFKA_SASL_MECHANISM: 'SCRAM-SHA-512', KAFKA_USERNAME: 'relay', KAFKA_PASSWORD: 'secret' };
  assert.deepEqual(kafkaSecurity({ KAFKA_TLS: 'true', ...login }), {
    tls: {},
    sasl: { mechanism: 'SCRAM-SHA-512', username: 'relay', password: 'secret' },
  });
});

test('files are read, and one of them is enough to mean TLS', () => {
  const { tls } = kafkaSecurity({ KAFKA_CA_FILE: import.meta.filename });
  assert.match((tls as { ca: string }).ca, /one of them is enough/);
  const own = { KAFKA_CA_FILE: '', KAFKA_CERT_FILE: import.meta.filename, KAFKA_KEY_FILE: import.meta.filename };
  assert.ok(kafkaSecurity(own).tls, 'a variable that is empty is as good as none');
  assert.throws(() => kafkaSecurity({ ...own, KAFKA_TLS: 'false' }), { code: 'TP_OPTION' });
});

test('what is incomplete is refused, and says nothing of a password', () => {
  const secret = { KAFKA_PASSWORD: 'hunter2' };
  for (const [env, what] of [
    [{ KAFKA_TLS: 'yes' }, /KAFKA_TLS/],
    [{ KAFKA_CERT_FILE: 'a' }, /KAFKA_KEY_FILE/],
    [{ KAFKA_TLS: 'false', KAFKA_CA_FILE: 'a' }, /false/],
    [{ KAFKA_CA_FILE: '/nowhere/ca.pem' }, /KAFKA_CA_FILE cannot be read.*ENOENT/],
    [{ KAFKA_USERNAME: 'relay', ...secret }, /KAFKA_SASL_MECHANISM/],
    [{ KAFKA_SASL_MECHANISM: 'PLAIN', ...secret }, /KAFKA_USERNAME/],
    [{ KAFKA_SASL_MECHANISM: 'GSSAPI', KAFKA_USERNAME: 'relay', ...secret }, /GSSAPI/],
  ] as const) {
    assert.throws(
      () => kafkaSecurity(env),
      (error: Error & { code: string }) =>
        error.code === 'TP_OPTION' &&
        error.message === securityProblems(env).join() &&
        what.test(error.message) &&
        !error.message.includes('hunter2'),
    );
  }
});
