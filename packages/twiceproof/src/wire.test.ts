import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { SourcedMessage } from './source.ts';
import type { Delivery } from './transport.ts';
import { uuidv7 } from './uuid.ts';
import { fromDelivery, toRecord, type ReceivedMessage } from './wire.ts';

const id = '0192f3a4-5b6c-7d8e-9f00-112233445566';
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

interface Sent {
  key?: Uint8Array | undefined;
  value?: Uint8Array | string;
  headers?: Record<string, string | Uint8Array> | [string, Uint8Array][];
}

function delivery({ key = bytes('k'), value = '', headers = {} }: Sent): Delivery {
  const pairs = Array.isArray(headers) ? headers : Object.entries(headers);
  return {
    lane: { topic: 't', partition: 0 },
    key,
    value: typeof value === 'string' ? bytes(value) : value,
    headers: pairs.map(([name, each]) => [name, typeof each === 'string' ? bytes(each) : each] as const),
  };
}

function received(sent: Sent): ReceivedMessage {
  const message = fromDelivery(delivery(sent));
  assert.ok(!('problem' in message), JSON.stringify(message));
  return message;
}

function problem(sent: Sent): string {
  const message = fromDelivery(delivery(sent));
  assert.ok('problem' in message, JSON.stringify(message));
  return message.problem;
}

/** Also what begins with a byte order mark, which readers of text like to drop. */
const wellFormed = fc
  .tuple(fc.constantFrom('', '', '\ufeff'), fc.string({ unit: 'binary' }))
  .map((parts) => parts.join(''));
const message: fc.Arbitrary<SourcedMessage> = fc.record({
  id: fc.integer({ min: 0, max: 2 ** 48 - 1 }).map((ms) => uuidv7(ms)),
  topic: fc.constant('t'),
  aggregateId: wellFormed,
  type: wellFormed.filter((type) => type !== ''),
  payload: fc.uint8Array({ maxLength: 300 }),
  headers: fc.dictionary(
    wellFormed.filter((name) => !name.startsWith('ce_')),
    wellFormed,
    { noNullPrototype: true },
  ),
  createdAt: fc.date({ min: new Date(0), max: new Date('9999-12-31T23:59:59.999Z'), noInvalidDate: true }),
});

test('a message is read back as it was sent', () => {
  fc.assert(
    fc.property(message, wellFormed, (sent, source) => {
      const { topic, key, value, headers } = toRecord(sent, source);
      assert.equal(topic, 't');
      const { payload, ...came } = received({ key: bytes(key), value, headers: { ...headers } });
      const { payload: sentPayload, ...expected } = sent;
      assert.deepEqual(came, { ...expected, source });
      assert.deepEqual([...payload], [...sentPayload]);
    }),
    { numRuns: 1_000 },
  );
});

test('on the wire it is a CloudEvent in binary mode: the payload is the value, all else is headers', () => {
  const createdAt = new Date('2026-01-02T03:04:05.678Z');
  const payload = bytes('{"a": 1,\n "a": 2}');
  const headers = { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', ce_id: 'forged' };
  const record = toRecord(
    { id, topic: 't', aggregateId: 'order 7', type: 'made', payload, createdAt, headers },
    '/orders',
  );
  assert.deepEqual(record, {
    topic: 't',
    key: 'order 7',
    value: payload,
    headers: {
      traceparent: headers.traceparent,
      ce_specversion: '1.0',
      ce_id: id,
      ce_type: 'made',
      ce_source: '/orders',
      ce_subject: 'order 7',
      ce_time: '2026-01-02T03:04:05.678Z',
    },
  });
});

test('who cannot set headers sends fields of the value, by our names or those of a CloudEvent', () => {
  const ours = received({ value: JSON.stringify({ msg_id: id, event_type: 'made', payload: { b: 1, a: [2] } }) });
  assert.deepEqual([ours.id, ours.type, Buffer.from(ours.payload).toString()], [id, 'made', '{"b":1,"a":[2]}']);
  assert.deepEqual([ours.source, ours.createdAt], [undefined, undefined]);
  const event = { specversion: '1.0', id, type: 'made', source: '/s', time: '2026-01-02T03:04:05Z', data: 'as it is' };
  const cloud = received({ value: JSON.stringify(event), headers: { traceparent: 'x' } });
  assert.deepEqual([cloud.id, cloud.type, Buffer.from(cloud.payload).toString()], [id, 'made', 'as it is']);
  assert.deepEqual([cloud.source, cloud.createdAt], ['/s', new Date('2026-01-02T03:04:05Z')]);
  assert.deepEqual(cloud.headers, { traceparent: 'x' });
});

test('with an id among the headers the value is the payload, whatever fields it has', () => {
  const value = JSON.stringify({ msg_id: 'another', event_type: 'other', payload: 'not this' });
  const came = received({ value, headers: { ce_id: id, ce_type: 'made' } });
  assert.deepEqual([came.id, came.type, Buffer.from(came.payload).toString()], [id, 'made', value]);
});

test('an id is one id, however it is written; a name that comes twice counts once', () => {
  const upper = received({ headers: { ce_id: id.toUpperCase(), ce_type: 'made' } });
  assert.equal(upper.id, id);
  const twice = received({
    headers: [
      ['ce_id', bytes(id)],
      ['ce_type', bytes('first')],
      ['ce_type', bytes('second')],
      ['h', bytes('1')],
      ['h', bytes('2')],
    ],
  });
  assert.deepEqual([twice.type, twice.headers], ['first', { h: '1' }]);
});

test('what cannot be read is told why, and is not run on a guess', () => {
  const made = { ce_id: id, ce_type: 'made' };
  const notUtf8 = Uint8Array.of(0xff);
  assert.match(problem({ key: notUtf8, headers: made }), /key/);
  assert.match(fieldsProblem({ ...delivery({ headers: made }), key: undefined }), /no key/);
  assert.match(problem({ key: Buffer.alloc(2_001, 'k'), headers: made }), /key has more than 2000/);
  assert.match(problem({ headers: { ce_type: 'made' } }), /id/);
  assert.match(problem({ headers: { ...made, ce_id: 'order-7' } }), /UUIDv7/);
  assert.match(problem({ headers: { ...made, ce_id: '0192f3a4-5b6c-4d8e-9f00-112233445566' } }), /UUIDv7/);
  assert.match(problem({ headers: ['ce_id', 'ce_id'].map((name) => [name, bytes(id)]) }), /two ids/);
  assert.match(problem({ headers: { ce_id: id } }), /type/);
  assert.match(problem({ headers: { ...made, ce_type: '' } }), /type/);
  assert.match(problem({ headers: { ...made, ce_source: notUtf8 } }), /ce_source/);
  assert.match(problem({ value: JSON.stringify({ msg_id: id, event_type: 'made' }) }), /payload/);
  assert.match(problem({ value: JSON.stringify([id]) }), /id/);
  const deep = `{"msg_id":"${id}","event_type":"made","payload":${'['.repeat(200_000)}${']'.repeat(200_000)}}`;
  assert.match(problem({ value: deep }), /payload/);
  assert.deepEqual(received({ headers: { ...made, odd: notUtf8 } }).headers, {}, 'a header of others may be anything');
});

function fieldsProblem(odd: Delivery): string {
  const read = fromDelivery(odd);
  return 'problem' in read ? read.problem : '';
}

test('whatever comes, reading it never throws', () => {
  const anyText = fc.oneof(fc.string(), fc.constantFrom(id, 'ce_id', 'ce_type', 'ce_time', '__proto__', 'constructor'));
  const name = fc.oneof(
    anyText,
    fc.constantFrom('msg_id', 'event_type', 'payload', 'id', 'type', 'data', 'time', 'source'),
  );
  const json = fc.dictionary(name, fc.oneof(fc.jsonValue(), anyText)).map((fields) => bytes(JSON.stringify(fields)));
  const anything = fc.uint8Array({ maxLength: 40 });
  fc.assert(
    fc.property(
      fc.option(fc.oneof(anything, anyText.map(bytes)), { nil: undefined }),
      fc.oneof(json, anything),
      fc.array(fc.tuple(name, fc.oneof(anyText.map(bytes), anything)), { maxLength: 8 }),
      (key, value, headers) => {
        const read = fromDelivery({ ...delivery({ value, headers }), key });
        if ('problem' in read) assert.ok(read.problem.length > 0);
        else assert.ok(key && read.payload instanceof Uint8Array && read.type !== '');
      },
    ),
    { numRuns: 3_000 },
  );
});
