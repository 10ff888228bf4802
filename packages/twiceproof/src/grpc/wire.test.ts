/** What a client can do wrong on the wire, byte by byte; and that two equal answers are equal there too. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type IncomingHttpHeaders, type OutgoingHttpHeaders } from 'node:http2';
import { after, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { Server, ServerCredentials, ServerInterceptingCall, status, type ServerInterceptor } from '@grpc/grpc-js';
import type { Operation } from '../edge/operation.ts';
import { keyedCalls, keyedMethod, type GrpcAnswer, type SeenCall } from './keyed-calls.ts';

interface Command {
  name: string;
}

const definition = {
  path: '/effects/write',
  requestStream: false,
  responseStream: false,
  requestSerialize: (value: Command) => Buffer.from(JSON.stringify(value)),
  requestDeserialize: (bytes: Buffer) => JSON.parse(bytes.toString()) as Command,
  responseSerialize: (value: Command) => {
    if (value.name === 'cannot be encoded') throw new Error('secret');
    return Buffer.from(JSON.stringify(value));
  },
  responseDeserialize: (bytes: Buffer) => JSON.parse(bytes.toString()) as Command,
};

/** Every command that came through, and so would have come to the database. */
let ran: string[] = [];
const operation: Operation<Command, Command> = {
  name: 'effects.write',
  run: async (_, command) => {
    ran.push(command.name);
    await turn();
    const replayed = ran.filter((name) => name === command.name).length > 1;
    const version = command.name === 'is of a later version' ? 2 : 1;
    return { outcome: 'answered', code: 200, result: command, version, replayed };
  },
};

function render({ result }: { result: Command }): GrpcAnswer<Command> {
  const trailers = { 'x-name': result.name, 'x-detail-bin': Buffer.from([0, 255, 10]) };
  switch (result.name) {
    case 'not found':
      return { code: status.NOT_FOUND, details: 'no “such” thing\n100 % \ud800', trailers };
    case 'cannot be rendered':
      throw new Error('secret');
    case 'has a trailer that cannot be sent':
      return { response: result, trailers: { 'x-name': 'line\nline' } };
    default:
      return { response: result, trailers };
  }
}

let seen: SeenCall[] = [];
const maxMessageBytes = 1_000;

async function serve(before: ServerInterceptor[] = []): Promise<{ server: Server; origin: string }> {
  const door = keyedCalls({
    methods: [
      keyedMethod(definition, operation, { parse: (request) => ({ command: request }), render: { 1: render } }),
    ],
    principal: (metadata) => metadata.get('authorization')[0]?.toString(),
    observe: (each) => seen.push(each),
  });
  const server = new Server({
    'grpc.max_receive_message_length': maxMessageBytes,
    interceptors: [...before, door],
  });
  const handler = (): void => assert.fail('the handler of a keyed method runs');
  server.addService({ write: definition }, { write: handler });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    );
  });
  return { server, origin: `http://127.0.0.1:${port}` };
}

const { server, origin } = await serve();
after(() => server.forceShutdown());

function frame(content: Buffer | string, flag = 0): Buffer {
  const bytes = Buffer.from(content);
  const head = Buffer.alloc(5);
  head.writeUInt8(flag);
  head.writeUInt32BE(bytes.length, 1);
  return Buffer.concat([head, bytes]);
}

interface Answered {
  headers: IncomingHttpHeaders;
  body: string;
  trailers: IncomingHttpHeaders;
  code: number;
  problem: unknown;
  details: string;
}

async function call(body: Buffer, headers: OutgoingHttpHeaders = {}, at = origin): Promise<Answered> {
  const session = connect(at);
  const stream = session.request({
    ':method': 'POST',
    ':path': '/effects/write',
    'content-type': 'application/grpc',
    te: 'trailers',
    authorization: 'alice',
    'idempotency-key': 'key',
    ...headers,
  });
  let trailers: IncomingHttpHeaders = {};
  stream.on('trailers', (given: IncomingHttpHeaders) => (trailers = given));
  stream.end(body);
  const [given] = (await once(stream, 'response')) as [IncomingHttpHeaders];
  const { date: _, ...rest } = given;
  const pieces: Buffer[] = [];
  for await (const piece of stream) pieces.push(piece as Buffer);
  session.close();
  const last = { ...given, ...trailers };
  return {
    headers: rest,
    body: Buffer.concat(pieces).toString('hex'),
    trailers,
    code: Number(last['grpc-status']),
    problem: last['twiceproof-problem'],
    details: decodeURI(String(last['grpc-message'])),
  };
}

const named = (name: string): Buffer => frame(JSON.stringify({ name }));

for (const [name, code] of [
  ['done', status.OK],
  ['not found', status.NOT_FOUND],
] as const) {
  test(`${name}: a replay has every byte of the original, headers, message and trailers`, async () => {
    ran = [];
    seen = [];
    const first = await call(named(name));
    assert.equal(first.code, code);
    assert.deepEqual(await call(named(name)), first);
    const last = code === status.OK ? first.trailers : first.headers;
    assert.equal(last['x-name'], name);
    assert.equal(last['x-detail-bin'], Buffer.from([0, 255, 10]).toString('base64'));
    assert.deepEqual(
      seen.map(({ outcome }) => outcome),
      ['first', 'replayed'],
    );
  });
}

test('a text that cannot be encoded is sent as well as can be', async () => {
  assert.equal((await call(named('not found'))).details, 'no “such” thing\n100 % \ufffd');
});

test('a compressed message is the same request', async () => {
  const zipped = await call(frame(gzipSync('{"name":"zipped"}'), 1), { 'grpc-encoding': 'gzip' });
  assert.deepEqual(zipped, await call(named('zipped')));
  assert.equal(zipped.code, status.OK);
});

const gzip = { 'grpc-encoding': 'gzip' };
const wrong: [string, Buffer, OutgoingHttpHeaders, status, string | undefined][] = [
  ['no JSON', frame('{'), {}, status.INVALID_ARGUMENT, 'body-malformed'],
  ['an empty message', frame(''), {}, status.INVALID_ARGUMENT, 'body-malformed'],
  ['no message', Buffer.alloc(0), {}, status.INVALID_ARGUMENT, 'body-malformed'],
  ['half a message', named('half').subarray(0, 10), {}, status.INVALID_ARGUMENT, 'body-malformed'],
  ['two messages', Buffer.concat([named('a'), named('a')]), {}, status.INVALID_ARGUMENT, 'body-malformed'],
  ['no gzip', frame('{"name":"a"}', 1), gzip, status.INVALID_ARGUMENT, 'body-malformed'],
  ['half a gzip', frame(gzipSync('{"name":"a"}').subarray(0, 20), 1), gzip, status.INVALID_ARGUMENT, 'body-malformed'],
  ['a deadline that is none', named('a'), { 'grpc-timeout': 'soon' }, status.INVALID_ARGUMENT, 'body-malformed'],
  ['too large', frame('x'.repeat(maxMessageBytes + 1)), {}, status.RESOURCE_EXHAUSTED, 'body-too-large'],
  ['too large when unzipped', frame(gzipSync(Buffer.alloc(1e6)), 1), gzip, status.RESOURCE_EXHAUSTED, 'body-too-large'],
  ['an encoding of its own', frame('x', 1), { 'grpc-encoding': 'brotli' }, status.UNIMPLEMENTED, undefined],
  ['an empty key', named('a'), { 'idempotency-key': '' }, status.INVALID_ARGUMENT, 'key-malformed'],
  ['two keys', named('a'), { 'idempotency-key': ['a', 'b'] }, status.INVALID_ARGUMENT, 'key-malformed'],
  ['twice the same key', named('a'), { 'idempotency-key': ['a', 'a'] }, status.INVALID_ARGUMENT, 'key-malformed'],
  ['two keys in quotes', named('a'), { 'idempotency-key': ['"a"', '"b"'] }, status.INVALID_ARGUMENT, 'key-malformed'],
  ['bytes beside the key', named('a'), { 'idempotency-key-bin': 'AAAA' }, status.INVALID_ARGUMENT, 'key-malformed'],
  [
    'bytes for a key',
    named('a'),
    { 'idempotency-key': undefined, 'idempotency-key-bin': 'AAAA' },
    status.INVALID_ARGUMENT,
    'key-malformed',
  ],
  ['no key', named('a'), { 'idempotency-key': undefined }, status.INVALID_ARGUMENT, 'key-missing'],
  ['nobody', named('a'), { authorization: '' }, status.UNAUTHENTICATED, 'unauthenticated'],
];
for (const [name, body, headers, code, problem] of wrong) {
  test(`${name}: refused, and never asked for`, async () => {
    ran = [];
    const answer = await call(body, headers);
    assert.deepEqual([answer.code, answer.problem], [code, problem], answer.details);
    assert.deepEqual(ran, []);
    assert.equal(answer.body, '');
  });
}

for (const name of [
  'cannot be rendered',
  'is of a later version',
  'cannot be encoded',
  'has a trailer that cannot be sent',
]) {
  test(`an answer that ${name}: nobody hears that nothing was done`, async () => {
    const { code, problem, details, headers } = await call(named(name));
    assert.deepEqual([code, problem], [status.UNAVAILABLE, 'outcome-unknown']);
    assert.equal(headers['grpc-retry-pushback-ms'], '1000');
    assert.doesNotMatch(details, /secret/);
  });
}

test('an interceptor before it sees the answer, and what cannot be decoded is still refused', async () => {
  const answers: unknown[] = [];
  const spy: ServerInterceptor = (_, next) =>
    new ServerInterceptingCall(next, {
      sendMessage: (message, send) => {
        answers.push(message);
        send(message);
      },
      sendStatus: (given, send) => {
        answers.push(given.code);
        send(given);
      },
    });
  const spied = await serve([spy]);
  const answer = await call(named('spied'), {}, spied.origin);
  assert.equal(answer.code, status.OK);
  assert.deepEqual(answers, [{ name: 'spied' }, status.OK]);
  ran = [];
  // Not INVALID_ARGUMENT: grpc-js answers by itself, below the other interceptor.
  assert.equal((await call(frame('{'), {}, spied.origin)).code, status.INTERNAL);
  assert.deepEqual(ran, []);
  spied.server.forceShutdown();
});
