import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Client, credentials, Metadata, Server, ServerCredentials, status, type StatusObject } from '@grpc/grpc-js';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { handlerOperation, type Operation } from '../edge/operation.ts';
import { migrate } from '../migrations/migrate.ts';
import { uuidv7 } from '../uuid.ts';
import { grpcOperation, type GrpcAnswer, type SeenCall } from './operation.ts';

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

/** Names that begin so come to another end. */
const operation = handlerOperation<Command, Result>({
  pool,
  name: 'effects.write',
  execute: async (tx, { name }) => {
    const { rows } = await tx.query('INSERT INTO effects (name) VALUES ($1) RETURNING id', [name]);
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
const server = new Server();
server.addService(
  { write: { path: '/effects/write', requestStream: false, responseStream: false, ...json } },
  {
    write: grpcOperation<Command, Result, Command, Result>(
      { ...operation, run: replies },
      {
        principal: ({ metadata }) => metadata.get('authorization')[0]?.toString(),
        parse: (request) => (request.name ? { command: { name: request.name } } : { invalid: 'name is missing' }),
        render: { 1: render },
        observe: (each) => seen.push(each),
      },
    ),
  },
);
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

async function call(name: string, keys: string[] = [name.replaceAll(' ', '-')], tenant = 'alice'): Promise<Answered> {
  const metadata = new Metadata();
  for (const key of keys) metadata.add('idempotency-key', key);
  if (tenant) metadata.set('authorization', tenant);
  return new Promise((resolve) => {
    let response: Result | undefined;
    const { requestSerialize, responseDeserialize } = json;
    client
      .makeUnaryRequest('/effects/write', requestSerialize, responseDeserialize, { name }, metadata, (_, message) => {
        response = message;
      })
      .on('status', ({ code, details, metadata: given }: StatusObject) => {
        const { date: _, ...trailers } = given.getMap();
        resolve({ code, details, trailers, response });
      });
  });
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
