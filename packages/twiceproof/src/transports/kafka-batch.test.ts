import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as client from '@platformatic/kafka';
import fc from 'fast-check';
import { TwiceproofError } from '../errors.ts';
import type { OutgoingRecord } from '../transport.ts';
import { Carried, produceRequest, sendEncoded } from './kafka-batch.ts';
import { encodeRecord, type EncodedRecord } from './record.ts';

interface Produces {
  createRequest(acks: number, timeoutMs: number, messages: unknown[], options: unknown): client.Writer;
}

/** Every version that the client knows; what it would send itself is what we must send. */
const versions = Object.entries(client).flatMap(([name, api]) => {
  const version = /^produceV(\d+)$/.exec(name)?.[1];
  return version === undefined ? [] : [{ version: Number(version), api: api as Produces }];
});

const lengths = [0, 1, 63, 64, 65, 8_191, 8_192, 8_193];
const text = fc.string({ unit: 'binary', maxLength: 40 });
const longText = fc.oneof(
  text,
  fc.constantFrom(...lengths).map((length) => 'x'.repeat(length)),
);
const record = fc.record({
  topic: fc.constantFrom('orders', 'payments'),
  partition: fc.integer({ min: 0, max: 2 }),
  key: longText,
  value: fc.oneof(
    fc.uint8Array({ maxLength: 100 }),
    fc.constantFrom(...lengths).map((length) => new Uint8Array(length)),
  ),
  headers: fc.dictionary(fc.oneof(text, fc.constantFrom('ce_id', 'ce_type')), longText, { maxKeys: 9 }),
});
const producerState = fc.record({
  producerId: fc.bigInt({ min: -1n, max: 2n ** 63n - 1n }),
  producerEpoch: fc.integer({ min: 0, max: 32_767 }),
  firstSequence: fc.integer({ min: 0, max: 2 ** 31 - 1 }),
  nowMs: fc.integer({ min: 0, max: 2 ** 42 }),
});

test('a request is byte by byte what the client would send, in every version that it knows', () => {
  assert.deepEqual(
    versions.map(({ version }) => version).sort((a, b) => a - b),
    [3, 4, 5, 6, 7, 8, 9, 10, 11],
  );
  // By partition, as the client would sort them.
  const records = fc
    .array(record, { minLength: 1, maxLength: 150 })
    .map((given) => given.sort((a, b) => a.partition - b.partition));
  fc.assert(
    fc.property(fc.constantFrom(...versions), records, producerState, ({ version, api }, given, ids) => {
      const { producerId, producerEpoch, firstSequence, nowMs } = ids;
      const sequences = { getWithDefault: (lane: string) => (lane === 'orders:1' ? firstSequence : 7) };
      const options = { producerId, producerEpoch, sequences };
      const messages = given.map((each) => ({ ...each, value: new Carried(encoded(each)) }));
      const ours = produceRequest(version, { acks: -1, timeoutMs: 10_000, messages, options }, nowMs);
      const theirs = api.createRequest(
        -1,
        10_000,
        given.map((each) => asClientTakes(each, nowMs)),
        options,
      );
      assert.equal(Buffer.compare(ours.buffer, theirs.buffer), 0);
    }),
    { numRuns: 300 },
  );
});

test('a version of which we do not know the form is not sent', () => {
  const options = { producerId: 1n, producerEpoch: 0, sequences: { getWithDefault: () => 0 } };
  for (const version of [2, 13]) {
    const request = () => produceRequest(version, { acks: -1, timeoutMs: 1, messages: [], options });
    assert.throws(request, /version/);
  }
});

test('a producer that is told to sends our bytes, and none that is not told would send a record for an empty one', async (context) => {
  const given = { topic: 'orders', partition: 1, key: 'o-1', value: Buffer.from('paid'), headers: { ce_id: '7' } };
  const messages = [{ topic: 'orders', partition: 1, value: new Carried(encoded(given)) }];
  const options = { producerId: 1n, producerEpoch: 0, sequences: { getWithDefault: () => 5 } };
  context.mock.timers.enable({ apis: ['Date'], now: 1_000 });
  const expected = produceRequest(11, { acks: -1, timeoutMs: 1_000, messages, options }, 1_000);
  assert.deepEqual(await sentBy(sendEncoded, messages, options), expected.buffer);
  await assert.rejects(
    sentBy(() => {}, messages, options),
    /encodes records by itself/,
  );
});

/** What a producer gives to its connection, with the client's own way from its API to there. */
async function sentBy(
  prepare: (producer: client.Producer) => void,
  messages: unknown[],
  options: object,
): Promise<Buffer> {
  const producer = new client.Producer({ clientId: 'test', bootstrapBrokers: ['localhost:1'] });
  const apis = producer as unknown as Record<symbol, unknown>;
  apis[client.kListApis] = (callback: (error: null, apis: object[]) => void) =>
    callback(null, [{ name: 'Produce', minVersion: 3, maxVersion: 11 }]);
  prepare(producer);
  type Api = (connection: object, ...args: unknown[]) => void;
  const getApi = apis[client.kGetApi] as (name: string, callback: (error: null, api: Api) => void) => void;
  try {
    return await new Promise((resolve) => {
      const send = (_key: number, _version: number, payload: () => client.Writer): void =>
        resolve(Promise.resolve().then(() => payload().buffer));
      getApi.call(producer, 'Produce', (_, api) => api({ send }, -1, 1_000, messages, options, () => {}));
    });
  } finally {
    await producer.close();
  }
}

test('sequences begin at 0 again behind 2^31 - 1, as those of brokers do', () => {
  const given = { topic: 'orders', partition: 0, key: 'k', value: Buffer.from('v') };
  const request = (sequence: number): Buffer => {
    const options = { producerId: 1n, producerEpoch: 0, sequences: { getWithDefault: () => sequence } };
    const messages = [{ ...given, value: new Carried(encoded(given)) }];
    return produceRequest(11, { acks: -1, timeoutMs: 1, messages, options }, 0).buffer;
  };
  assert.deepEqual(request(2 ** 31 + 3), request(3));
});

test('a record is never longer than it says, and one byte more than allowed is too much', () => {
  const options = { producerId: 1n, producerEpoch: 0, sequences: { getWithDefault: () => 0 } };
  fc.assert(
    fc.property(record, (given) => {
      const { bytes } = encoded(given);
      const messages = [{ ...given, value: new Carried(encoded(given)) }];
      const empty = produceRequest(3, { acks: -1, timeoutMs: 1, messages: [], options }).length;
      const around = 2 + given.topic.length + 4 + 4 + 4;
      assert.ok(produceRequest(3, { acks: -1, timeoutMs: 1, messages, options }).length - empty - around <= bytes);
      assert.ok(!(encodeRecord(given, bytes) instanceof TwiceproofError));
      const refused = encodeRecord(given, bytes - 1);
      assert.ok(refused instanceof TwiceproofError && refused.code === 'TP_RECORD_TOO_LARGE');
    }),
  );
});

function encoded(given: OutgoingRecord): EncodedRecord {
  const bytes = encodeRecord(given, Infinity);
  if (bytes instanceof TwiceproofError) throw bytes;
  return bytes;
}

function asClientTakes(
  { topic, partition, key, value, headers }: OutgoingRecord & { partition: number },
  nowMs: number,
) {
  const entries = Object.entries(headers ?? {}).map(([name, each]) => [Buffer.from(name), Buffer.from(each)] as const);
  return {
    topic,
    partition,
    key: Buffer.from(key),
    value: Buffer.from(value),
    headers: new Map(entries),
    timestamp: BigInt(nowMs),
  };
}
