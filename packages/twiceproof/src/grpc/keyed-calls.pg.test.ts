import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:http2';
import { after, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import {
  Client,
  credentials,
  Metadata,
  Server,
  ServerCredentials,
  status,
  type CallOptions,
  type ClientUnaryCall,
  type sendUnaryData,
  type ServerInterceptingCallInterface,
  type ServerUnaryCall,
  type ServerWritableStream,
  type StatusObject,
} from '@grpc/grpc-js';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { handlerOperation, type Operation } from '../edge/operation.ts';
import { migrate } from '../migrations/migrate.ts';
import { uuidv7 } from '../uuid.ts';
import { keyedCalls, keyedMethod, type GrpcAnswer, type SeenCall } from './keyed-calls.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url, max: 10 });
await migrate(pool);
await pool.query('CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY, name text NOT NULL)');

interface Command {
  name: string;
}
interface Result {
  id: string;
}

/** Those who are held stay in the middle of their transaction until they are let go. */
const held = new Map<string, { entered(): void; letGo: Promise<void> }>();

/** Names that begin so come to another end. */
const operation = handlerOperation<Command, Result>({
  pool,
  name: 'effects.write',
  execute: async (tx, { name }) => {
    const { rows } = await tx.query('INSERT INTO effects (name) VALUES ($1) RETURNING id', [name]);
    held.get(name)?.entered();
    await held.get(name)?.letGo;
    if (name.startsWith('fails')) throw new Error('the password is secret');
    return { code: name.startsWith('refused') ? 404 : 200, result: { id: String(rows[0]?.['id']) } };
  },
});
const replies: Operation<Command, Result>['run'] = async (caller, command) => {
  if (command.name === 'busy') return { outcome: 'busy', retryAfterMs: 1_500 };
  if (command.name === 'not kept')
    return { outcome: 'answered', code: 200, result: undefined, version: 1, replayed: true };
  if (command.name === 'away') throw Object.assign(new Error('connect'), { code: 'ECONNREFUSED' });
  if (command.name === 'unknown') throw Object.assign(new Error('lost'), { code: 'TP_COMMIT_UNKNOWN' });
  return operation.run(caller, command);
};

let seen: SeenCall[] = [];
function render({ code, result }: { code: number; result: Result }): GrpcAnswer<Result> {
  const trailers = { 'x-id': result.id };
  if (code === 404) return { code: status.NOT_FOUND, details: `no ${result.id}`, trailers };
  return { response: result, trailers };
}

const json = {
  requestSerialize: (value: unknown) => Buffer.from(JSON.stringify(value)),
  requestDeserialize: (bytes: Buffer) => JSON.parse(bytes.toString()) as Command,
  responseSerialize: (value: unknown) => Buffer.from(JSON.stringify(value)),
  responseDeserialize: (bytes: Buffer) => JSON.parse(bytes.toString()) as Result,
};
const unary = { requestStream: false, responseStream: false, ...json };
const service = {
  write: { path: '/effects/write', ...unary },
  plain: { path: '/effects/plain', ...unary },
  list: { path: '/effects/list', ...unary, responseStream: true },
};
let lastCall: ServerInterceptingCallInterface | undefined;
let observe = (each: SeenCall): unknown => seen.push(each);
const parse = (request: Command) =>
  request.name ? { command: { name: request.name } } : { invalid: 'name is missing' };
const server = new Server({
  interceptors: [
    keyedCalls({
      methods: [keyedMethod(service.write, { ...operation, run: replies }, { parse, render: { 1: render } })],
      principal: (metadata, incoming) => {
        lastCall = incoming;
        return metadata.get('authorization')[0]?.toString();
      },
      observe: (each) => observe(each),
    }),
  ],
});
server.addService(service, {
  plain: (asked: ServerUnaryCall<Command, Result>, answer: sendUnaryData<Result>) => {
    const trailers = new Metadata();
    trailers.set('x-key', asked.metadata.get('idempotency-key')[0] ?? 'none');
    answer(null, { id: asked.request.name }, trailers);
  },
  list: (asked: ServerWritableStream<Command, Result>) => {
    for (const id of ['1', '2']) asked.write({ id });
    asked.end();
  },
});
const port = await new Promise<number>((resolve, reject) => {
  server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
    error ? reject(error) : resolve(bound),
  );
});
const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
// Now, so that the leak check does not take its connection for a test's.
await new Promise<void>((resolve, reject) => {
  client.waitForReady(Date.now() + 5_000, (error) => (error ? reject(error) : resolve()));
});
after(async () => {
  client.close();
  server.forceShutdown();
  await pool.end();
});

interface Answered {
  code: status;
  details: string;
  trailers: Record<string, unknown>;
  response: Result | undefined;
}

interface Asked {
  answered: Promise<Answered>;
  request: ClientUnaryCall;
}

function ask(
  name: string,
  keys: string[],
  {
    tenant = 'alice',
    path = '/effects/write',
    options = {},
  }: { tenant?: string; path?: string; options?: CallOptions } = {},
): Asked {
  const metadata = new Metadata();
  for (const key of keys) metadata.add('idempotency-key', key);
  if (tenant) metadata.set('authorization', tenant);
  const { promise, resolve } = Promise.withResolvers<Answered>();
  let response: Result | undefined;
  const { requestSerialize, responseDeserialize } = json;
  const request = client.makeUnaryRequest(
    path,
    requestSerialize,
    responseDeserialize,
    { name },
    metadata,
    options,
    (_, message) => {
      response = message;
    },
  );
  request.on('status', ({ code, details, metadata: given }: StatusObject) => {
    const { date: _, ...trailers } = given.getMap();
    resolve({ code, details, trailers, response });
  });
  return { answered: promise, request };
}

const key = (name: string): string => name.replaceAll(' ', '-');

async function call(name: string, keys: string[] = [key(name)], tenant = 'alice'): Promise<Answered> {
  return ask(name, keys, { tenant }).answered;
}

async function effects(name: string): Promise<number> {
  return (await pool.query('SELECT 1 FROM effects WHERE name = $1', [name])).rowCount ?? 0;
}

for (const [name, code] of [
  ['done', status.OK],
  ['refused', status.NOT_FOUND],
] as const) {
  test(`${name}: status, details, message and trailers are the same at each repetition, and there is one effect`, async () => {
    const answers = await Promise.all(Array.from({ length: 16 }, async () => call(name)));
    for (const each of [...answers, await call(name, [`"${name}"`])]) assert.deepEqual(each, answers[0]);
    assert.equal(answers[0]?.code, code);
    assert.match(String(answers[0]?.trailers['x-id']), /^\d+$/);
    assert.equal(await effects(name), 1);
  });
}

test('what is refused has a status, and a name for programs', async () => {
  await call('taken');
  const cases: [Promise<Answered>, status, string][] = [
    [call('other', ['taken']), status.FAILED_PRECONDITION, 'key-reused'],
    [call('old', [uuidv7(Date.now() - 80 * 3_600_000)]), status.FAILED_PRECONDITION, 'key-expired'],
    [call('not kept'), status.FAILED_PRECONDITION, 'answer-not-kept'],
    [call('none', []), status.INVALID_ARGUMENT, 'key-missing'],
    [call('two', ['a', 'b']), status.INVALID_ARGUMENT, 'key-malformed'],
    [call('long', ['x'.repeat(256)]), status.INVALID_ARGUMENT, 'key-malformed'],
    [call('', ['invalid']), status.INVALID_ARGUMENT, 'request-invalid'],
    [call('nobody', ['nobody'], ''), status.UNAUTHENTICATED, 'unauthenticated'],
    [call('busy'), status.UNAVAILABLE, 'busy'],
    [call('away'), status.UNAVAILABLE, 'unavailable'],
    [call('unknown'), status.UNAVAILABLE, 'outcome-unknown'],
    [call('fails'), status.INTERNAL, 'internal'],
  ];
  for (const [asked, code, name] of cases) {
    const answer = await asked;
    assert.deepEqual([answer.code, answer.trailers['twiceproof-problem']], [code, name]);
    assert.doesNotMatch(answer.details, /secret/);
    assert.equal('grpc-retry-pushback-ms' in answer.trailers, code === status.UNAVAILABLE);
  }
  assert.equal((await call('busy')).trailers['grpc-retry-pushback-ms'], '1500');
  for (const name of ['other', 'old', 'none', 'two', 'fails']) assert.equal(await effects(name), 0);
});

test('whoever observes is told what became of each call', async () => {
  seen = [];
  await call('seen');
  await call('seen');
  await call('fails again');
  assert.deepEqual(
    seen.map(({ outcome, status: code }) => [outcome, code]),
    [
      ['first', status.OK],
      ['replayed', status.OK],
      ['internal', status.INTERNAL],
    ],
  );
  assert.match(String(seen[2]?.error), /secret/);
});

test('what an observer throws changes no answer, and is a warning', async () => {
  const usual = observe;
  observe = () => {
    throw new Error('of the observer');
  };
  const warned = once(process, 'warning');
  assert.equal((await call('badly observed')).code, status.OK);
  assert.match(String(await warned), /of the observer/);
  observe = usual;
});

test('a method without a key goes to its handler, with all that the client has sent', async () => {
  seen = [];
  const plain = await ask('plain', ['its own'], { path: '/effects/plain' }).answered;
  assert.deepEqual(plain, { code: 0, details: 'OK', trailers: { 'x-key': 'its own' }, response: { id: 'plain' } });
  const stream = client.makeServerStreamRequest('/effects/list', json.requestSerialize, json.responseDeserialize, {
    name: '',
  });
  assert.deepEqual(await stream.toArray(), [{ id: '1' }, { id: '2' }]);
  assert.deepEqual(seen, []);
});

test('a streaming method cannot have a key, and nobody gets as far as to call it', () => {
  for (const streaming of [{ requestStream: true }, { responseStream: true }]) {
    assert.throws(
      () => keyedMethod({ ...service.write, ...streaming }, operation, { parse, render: { 1: render } }),
      /TP_OPTION: \/effects\/write is a streaming method/,
    );
  }
});

/** How a client can go away, and what it tells itself then. */
const departures: [string, status, (request: ClientUnaryCall) => void, number?][] = [
  ['cancels', status.CANCELLED, (request) => request.cancel()],
  ['lets its deadline pass', status.DEADLINE_EXCEEDED, () => {}, 500],
];
for (const [name, code, depart, waitMs = 60_000] of departures) {
  test(`a client that ${name} in the middle changes nothing, and gets its answer later`, async () => {
    seen = [];
    const { entered, letGo } = hold(name);
    const { request, answered } = ask(name, [key(name)], { options: { deadline: Date.now() + waitMs } });
    await entered;
    depart(request);
    assert.equal((await answered).code, code);
    await serverNoticed();
    assert.equal(await effects(name), 0);
    letGo();
    await answeredLater(name);
  });
}

test('a client whose connection ends in the middle changes nothing, and gets its answer later', async () => {
  const name = 'ends';
  seen = [];
  const { entered, letGo } = hold(name);
  const session = connect(`http://127.0.0.1:${port}`);
  const stream = session.request({
    ':method': 'POST',
    ':path': '/effects/write',
    'content-type': 'application/grpc',
    authorization: 'alice',
    'idempotency-key': name,
  });
  const message = json.requestSerialize({ name });
  stream.end(Buffer.concat([Buffer.from([0, 0, 0, 0, message.length]), message]));
  await entered;
  session.destroy();
  await serverNoticed();
  assert.equal(await effects(name), 0);
  letGo();
  await answeredLater(name);
});

function hold(name: string): { entered: Promise<void>; letGo(): void } {
  const entered = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  held.set(name, { entered: entered.resolve, letGo: gate.promise });
  return { entered: entered.promise, letGo: gate.resolve };
}

/** A call whose stream is gone has nobody at its other end. */
async function serverNoticed(): Promise<void> {
  while (lastCall?.getPeer() !== 'unknown') await turn();
}

async function answeredLater(name: string): Promise<void> {
  const answer = await call(name);
  assert.deepEqual([answer.code, answer.response?.id], [status.OK, answer.trailers['x-id']]);
  assert.deepEqual(
    seen.map(({ outcome }) => outcome),
    ['first', 'replayed'],
  );
  assert.equal(await effects(name), 1);
}
