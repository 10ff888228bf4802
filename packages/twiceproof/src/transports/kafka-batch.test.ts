import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as client from '@platformatic/kafka';
import fc from 'fast-check';
import { TwiceproofError } from '../errors.ts';
import type { OutgoingRecord } from '../transport.ts';
import { produceRequest } from './kafka-batch.ts';
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
const producer = fc.record({
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
    fc.property(fc.constantFrom(...versions), records, producer, ({ version, api }, given, ids) => {
      const { producerId, producerEpoch, firstSequence, nowMs } = ids;
      const sequences = { getWithDefault: (lane: string) => (lane === 'orders:1' ? firstSequence : 7) };
      const options = { producerId, producerEpoch, sequences };
      const messages = given.map((each) => ({ ...each, value: encoded(each) }));
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
