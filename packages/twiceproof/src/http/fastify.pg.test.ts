import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type AddressInfo } from 'node:net';
import { after, test } from 'node:test';
import Fastify, { type FastifyRequest } from 'fastify';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { groupOperation, handlerOperation, type Operation } from '../edge/operation.ts';
import { migrate } from '../migrations/migrate.ts';
import type { Tx } from '../tx.ts';
import { fromFetch, keyedRoutes, keyLines } from './fastify.ts';
import { idempotentHandler } from './fetch.ts';
import { httpOperation, type HttpAnswer } from './operation.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url, max: 10 });
await migrate(pool);
await pool.query('CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY, name text NOT NULL)');

interface Result {
  id: string;
  text: string;
}

/** Held open by a test that wants something to happen in the middle. */
let gate = Promise.resolve();
let entered = Promise.withResolvers<void>();

async function write(tx: Tx, name: string): Promise<{ code: number; result: Result }> {
  const { rows } = await tx.query('INSERT INTO effects (name) VALUES ($1) RETURNING id', [name]);
  entered.resolve();
  await gate;
  return { code: 201, result: { id: String(rows[0]?.['id']), text: 'é \u2028' } };
}

function render({ code, result }: { code: number; result: Result }): HttpAnswer {
  const headers = { 'content-type': 'application/json', location: `/effects/${result.id}`, etag: `"${result.id}"` };
  return { status: code, headers, body: JSON.stringify(result) };
}

const errors: unknown[] = [];
const principal = (request: FastifyRequest): string | undefined => request.headers.authorization;
function route(path: string, operation: Operation<string, Result>, replayHeader = false, rendered = render) {
  const answer = httpOperation(operation, {
    principal,
    keyLines,
    replayHeader,
    parse: (request: FastifyRequest) => {
      const command = String(request.body);
      return command.length > 20 ? { problem: 'request-invalid', detail: 'it is long' } : { command };
    },
    render: { 1: rendered },
    observe: ({ error }) => errors.push(error),
  });
  return { url: path, answer };
}

const one = handlerOperation<string, Result>({ pool, name: 'one', execute: write });
const server = Fastify({ bodyLimit: 100 });
await server.register(keyedRoutes, {
  routes: [
    route('/handler', one),
    route('/told', one, true),
    ...(['/odd-name', '/odd-value'] as const).map((path) => {
      const odd = { '/odd-name': { 'set-cookie': 'a=b' }, '/odd-value': { etag: '"é"' } }[path];
      const rendered = (outcome: Parameters<typeof render>[0]): HttpAnswer => ({ ...render(outcome), headers: odd });
      return route(path, one, false, rendered);
    }),
    route('/newer', { ...one, run: async (caller, command) => ({ ...(await one.run(caller, command)), version: 2 }) }),
    route(
      '/group',
      groupOperation<string, Result>({
        pool,
        name: 'group',
        effects: async (tx, names) => Promise.all(names.map(async (name) => write(tx, name))),
      }),
    ),
    {
      url: '/fetch/:id',
      answer: fromFetch(
        idempotentHandler({
          pool,
          operation: 'fetch',
          principal: (request) => request.headers.get('authorization') ?? undefined,
          handler: async (request, tx) => {
            const name = await request.text();
            if (name === 'refused') {
              return new Response('', {
                status: 403,
                headers: [
                  ['set-cookie', 'a=1'],
                  ['set-cookie', 'b=2'],
                ],
              });
            }
            const { code, result } = await write(tx, name);
            const path = new URL(request.url).pathname;
            return new Response(`${path} ${result.id} \0`, { status: code, headers: { etag: `"${result.id}"` } });
          },
        }),
      ),
    },
  ],
});
await server.listen({ host: '127.0.0.1', port: 0 });
const { port } = server.server.address() as AddressInfo;
after(async () => {
  await server.close();
  await pool.end();
});

function requestText(path: string, lines: readonly string[], body: string): string {
  const head = [`POST ${path} HTTP/1.1`, 'host: localhost', 'connection: close', 'authorization: alice', ...lines];
  return `${head.join('\r\n')}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

/** All bytes of the answer, but the line that says when. */
async function exchange(path: string, lines: readonly string[], body: string): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  socket.write(requestText(path, lines, body));
  const pieces: Buffer[] = [];
  for await (const piece of socket) pieces.push(piece as Buffer);
  return Buffer.concat(pieces)
    .toString('latin1')
    .replace(/^date: .*\r\n/im, '');
}

async function effects(name: string): Promise<number> {
  return (await pool.query('SELECT 1 FROM effects WHERE name = $1', [name])).rowCount ?? 0;
}

for (const path of ['/handler', '/group', '/fetch/7']) {
  test(`${path}: a replay cannot be told from the original, in any byte`, async () => {
    const name = `parity ${path}`;
    const answers = await Promise.all(
      Array.from({ length: 16 }, async () => exchange(path, ['Idempotency-Key: parity'], name)),
    );
    const later = await exchange(path, ['idempotency-key: "parity"'], name);
    assert.equal(new Set([...answers, later]).size, 1, answers[0]);
    assert.match(later, /^HTTP\/1\.1 201 Created\r\n/);
    assert.match(later, /\r\netag: "\d+"\r\n/);
    assert.match(later, /\r\ncontent-length: \d+\r\n/);
    assert.equal(await effects(name), 1);
  });

  test(`${path}: two header lines, an empty one and a bad one are 400`, async () => {
    for (const lines of [
      ['Idempotency-Key: a', 'idempotency-key: a'],
      ['idempotency-key:'],
      ['idempotency-key: \xe9'],
    ]) {
      const raw = await exchange(path, lines, 'refused');
      assert.match(raw, /^HTTP\/1\.1 400 /);
      assert.match(raw, /urn:twiceproof:problem:key-malformed/);
    }
    assert.match(await exchange(path, [], 'refused'), /urn:twiceproof:problem:key-missing/);
    assert.equal(await effects('refused'), 0);
  });

  test(`${path}: a client that goes away in the middle changes nothing, and finds the answer when it comes back`, async () => {
    const name = `away ${path}`;
    const held = Promise.withResolvers<void>();
    gate = held.promise;
    entered = Promise.withResolvers();
    const socket = connect(port, '127.0.0.1');
    socket.write(requestText(path, ['idempotency-key: away'], name));
    await entered.promise;
    const gone = once(socket, 'close');
    socket.resetAndDestroy();
    await gone;
    const again = exchange(path, ['idempotency-key: away'], name);
    held.resolve();
    assert.match(await again, /^HTTP\/1\.1 201 /);
    assert.equal(await exchange(path, ['idempotency-key: away'], name), await again);
    assert.equal(await effects(name), 1);
  });
}

test('bytes that are no HTTP, behind a request that is under way: nobody takes the refusal of them for its answer', async () => {
  const held = Promise.withResolvers<void>();
  gate = held.promise;
  entered = Promise.withResolvers();
  const socket = connect(port, '127.0.0.1');
  socket.write(requestText('/handler', ['idempotency-key: behind'], 'behind'));
  await entered.promise;
  socket.write('\0\r\n\r\n');
  const received: Buffer[] = [];
  for await (const piece of socket) received.push(piece as Buffer);
  held.resolve();
  assert.equal(Buffer.concat(received).toString(), '');
  assert.match(await exchange('/handler', ['idempotency-key: behind'], 'behind'), /^HTTP\/1\.1 201 /);
  assert.equal(await effects('behind'), 1);
});

test('a request that is no HTTP itself is told so', async () => {
  const raw = await exchange('/handler', ['idempotency-key: a', 'transfer-encoding: chunked'], 'x');
  assert.match(raw, /^HTTP\/1\.1 400 /);
});

test('what the route or the framework refuses is a problem, and the key stays free', async () => {
  const key = ['idempotency-key: free'];
  assert.match(await exchange('/handler', key, 'x'.repeat(21)), /^HTTP\/1\.1 422 [^]*request-invalid[^]*it is long/);
  assert.match(await exchange('/handler', key, 'x'.repeat(101)), /^HTTP\/1\.1 413 [^]*body-too-large/);
  assert.match(await exchange('/handler', key, 'free'), /^HTTP\/1\.1 201 /);
  assert.match(await exchange('/handler', key, 'other'), /^HTTP\/1\.1 409 [^]*key-reused/);
});

test('a host that is none does no harm, and is no part of the path', async () => {
  for (const host of ['[', 'a:b@c', 'x/y?z', 'localhost#h', '']) {
    const socket = connect(port, '127.0.0.1');
    const asked = requestText('/fetch/9', ['idempotency-key: host'], 'host');
    socket.write(asked.replace('host: localhost', `host: ${host}`));
    const [answer] = (await once(socket, 'data')) as [Buffer];
    assert.match(answer.toString(), /^HTTP\/1\.1 201 /, `the same request, whatever the host: ${host}`);
    socket.destroy();
  }
});

test('a request that names the whole of its target is the same request', async () => {
  const asked = async (target: string): Promise<string> => exchange(target, ['idempotency-key: absolute'], 'absolute');
  const raw = await asked('/fetch/11?a=b');
  assert.match(raw, /^HTTP\/1\.1 201 [^]*\/fetch\/11 /);
  for (const host of ['localhost', 'localhost:80', 'elsewhere:1234']) {
    assert.equal(await asked(`http://${host}/fetch/11?a=b`), raw, host);
  }
});

test('headers that a replay would not have are an error at the first run, and nothing is written', async () => {
  for (const path of ['/odd-name', '/odd-value']) {
    assert.match(await exchange(path, [`idempotency-key: ${path.slice(1)}`], path), /^HTTP\/1\.1 500 [^]*internal/);
    assert.equal((errors.at(-1) as { code?: unknown }).code, 'TP_HEADER_NOT_KEPT');
    assert.equal(await effects(path), 0);
    assert.match(await exchange('/handler', [`idempotency-key: ${path.slice(1)}`], path), /^HTTP\/1\.1 201 /);
  }
});

test('an answer that is not stored has all of its cookies', async () => {
  const answered = await exchange('/fetch/1', ['idempotency-key: cookies'], 'refused');
  assert.match(answered, /^HTTP\/1\.1 403 [^]*\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n/);
});

test('a replay says so where that is asked for', async () => {
  assert.doesNotMatch(await exchange('/told', ['idempotency-key: told'], 'told'), /idempotent-replayed/);
  assert.match(await exchange('/told', ['idempotency-key: told'], 'told'), /\r\nidempotent-replayed: true\r\n/);
});

test('a result of a version that nothing renders is never said to be undone, and is there for the program that can', async () => {
  assert.match(await exchange('/newer', ['idempotency-key: newer'], 'newer'), /^HTTP\/1\.1 503 .*outcome-unknown/s);
  assert.match(await exchange('/handler', ['idempotency-key: newer'], 'newer'), /^HTTP\/1\.1 201 /);
  assert.equal(await effects('newer'), 1);
});
