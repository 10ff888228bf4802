import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import type { Tx } from '../tx.ts';
import { uuidv7 } from '../uuid.ts';
import type { Seen } from './door.ts';
import { idempotentHandler, type FetchHandlerOptions } from './fetch.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url, max: 10 });
after(async () => pool.end());
await migrate(pool);
await pool.query('CREATE TABLE effects (name text NOT NULL)');

let runs = 0;
async function writeEffect(request: Request, tx: Tx): Promise<Response> {
  runs += 1;
  await tx.query('INSERT INTO effects VALUES ($1)', [await request.text()]);
  return new Response(`run ${runs} \0 é`, {
    status: 201,
    headers: { location: `/effects/${runs}`, etag: `"${runs}"`, 'content-type': 'text/plain' },
  });
}

let seen: Seen[] = [];
function effectsDoor(options: Partial<FetchHandlerOptions> = {}) {
  return idempotentHandler({
    pool,
    operation: 'POST /effects',
    principal: (request) => request.headers.get('x-verified-tenant') ?? undefined,
    observe: (each) => seen.push(each),
    handler: writeEffect,
    ...options,
  });
}

interface Parts {
  key?: string;
  tenant?: string;
  body?: string;
  path?: string;
  type?: string;
  method?: string;
}

function keyed({
  key,
  tenant = 'alice',
  body = '',
  path = '/effects',
  type = 'text/plain',
  method = 'POST',
}: Parts): Request {
  const headers = new Headers({ 'content-type': type });
  if (key !== undefined) headers.set('idempotency-key', key);
  if (tenant) headers.set('x-verified-tenant', tenant);
  return new Request(`http://localhost${path}`, { method, headers, body });
}

async function wire(response: Response): Promise<{ status: number; headers: [string, string][]; body: string }> {
  const body = Buffer.from(await response.bytes()).toString('hex');
  return { status: response.status, headers: [...response.headers], body };
}

async function effects(name: string): Promise<number> {
  return (await pool.query('SELECT 1 FROM effects WHERE name = $1', [name])).rowCount ?? 0;
}

async function problemOf(response: Response): Promise<[number, string]> {
  assert.equal(response.headers.get('content-type'), 'application/problem+json');
  const { type } = (await response.json()) as { type: string };
  return [response.status, type.replace('urn:twiceproof:problem:', '')];
}

test('many at once and later ones get the same status, headers and bytes, of one run', async () => {
  const doors = [effectsDoor(), effectsDoor()];
  const ask = async (n: number) => wire(await doors[n % 2]!(keyed({ key: 'one', body: 'one' })));
  const answers = await Promise.all(Array.from({ length: 32 }, async (_, n) => ask(n)));
  for (const each of [...answers, await ask(0), await ask(1)]) assert.deepEqual(each, answers[0]);
  assert.equal(answers[0]?.status, 201);
  assert.equal(await effects('one'), 1);
});

test('the method, the body, its type, the path and the query are the request; the principal and the operation are the scope', async () => {
  const door = effectsDoor();
  assert.equal((await door(keyed({ key: 'scope', body: 'a' }))).status, 201);
  const others = [
    { body: 'b' },
    { type: 'text/html' },
    { path: '/effects/2' },
    { path: '/effects?x=1' },
    { method: 'PUT' },
  ];
  for (const other of others) {
    assert.deepEqual(await problemOf(await door(keyed({ key: 'scope', body: 'a', ...other }))), [409, 'key-reused']);
  }
  assert.equal((await door(keyed({ key: 'scope', body: 'b', tenant: 'bob' }))).status, 201);
  assert.equal((await effectsDoor({ operation: 'another' })(keyed({ key: 'scope', body: 'b' }))).status, 201);
});

test('no principal, no key, a bad key, two keys, too large a body: refused before anything is done', async () => {
  const before = runs;
  const door = effectsDoor({ maxBodyBytes: 10, pool: { connect: async () => assert.fail('a query') } });
  assert.deepEqual(await problemOf(await door(keyed({ key: 'x', tenant: '' }))), [401, 'unauthenticated']);
  assert.deepEqual(await problemOf(await door(keyed({}))), [400, 'key-missing']);
  assert.deepEqual(await problemOf(await door(keyed({ key: 'a b' }))), [400, 'key-malformed']);
  const two = keyed({ key: '"a' });
  two.headers.append('idempotency-key', 'b"');
  assert.deepEqual(await problemOf(await door(two)), [400, 'key-malformed']);
  assert.deepEqual(await problemOf(await door(keyed({ key: 'x', body: 'x'.repeat(11) }))), [413, 'body-too-large']);
  assert.equal(runs, before);
});

test('a header that a replay would not have is an error at the first run, and nothing is written', async () => {
  for (const [name, value] of [
    ['set-cookie', 'session=1'],
    ['x-request-id', '1'],
    ['www-authenticate', 'Bearer'],
  ] as const) {
    seen = [];
    const door = effectsDoor({
      handler: async (asked, tx) => {
        const response = await writeEffect(asked, tx);
        response.headers.set(name, value);
        return response;
      },
    });
    assert.deepEqual(await problemOf(await door(keyed({ key: 'header', body: 'header' }))), [500, 'internal']);
    assert.match(String(seen[0]?.error), new RegExp(`TP_HEADER_NOT_KEPT.*'${name}'`));
  }
  assert.equal(await effects('header'), 0);
});

test('an answer of 5xx, of refused rights or of a request that is not valid goes out as it is, is rolled back, and leaves the key free', async () => {
  for (const status of [500, 503, 400, 401, 403, 422, 429]) {
    const key = `unstored-${status}`;
    const failing = effectsDoor({
      handler: async (asked, tx) => {
        await writeEffect(asked, tx);
        const headers = [
          ['x-reason', 'mine'],
          ['set-cookie', 'a=1'],
          ['set-cookie', 'b=2'],
        ] as [string, string][];
        return new Response('not now', { status, headers });
      },
    });
    const response = await failing(keyed({ key, body: key }));
    assert.deepEqual(
      [response.status, response.headers.get('x-reason'), response.headers.getSetCookie(), await response.text()],
      [status, 'mine', ['a=1', 'b=2'], 'not now'],
    );
    assert.equal(await effects(key), 0);
    // Also with another body: it may have been corrected.
    assert.equal((await effectsDoor()(keyed({ key, body: `${key}, corrected` }))).status, 201);
    assert.equal(await effects(`${key}, corrected`), 1);
  }
});

test('what the handler throws is a 500 without details, and leaves the key free', async () => {
  const door = effectsDoor({ handler: async () => Promise.reject(new Error('the password is secret')) });
  const response = await door(keyed({ key: 'throws' }));
  const text = await response.text();
  assert.equal(response.status, 500);
  assert.doesNotMatch(text, /secret/);
  assert.equal((await effectsDoor()(keyed({ key: 'throws' }))).status, 201);
});

test('a 404 and an answer without a body are answers, and are replayed', async () => {
  for (const status of [404, 204, 409]) {
    const door = effectsDoor({
      handler: async (_, tx) => {
        await tx.query("INSERT INTO effects VALUES ('answers')");
        return new Response(status === 204 ? null : 'no', { status });
      },
    });
    const first = await wire(await door(keyed({ key: `answer-${status}` })));
    assert.equal(first.status, status);
    assert.deepEqual(await wire(await door(keyed({ key: `answer-${status}` }))), first);
  }
  assert.equal(await effects('answers'), 3);
});

test('too large an answer goes to the first, and is never made again', async () => {
  const door = effectsDoor({ maxAnswerBytes: 3 });
  const first = await door(keyed({ key: 'large', body: 'large' }));
  assert.deepEqual([first.status, (await first.text()).length > 3], [201, true]);
  assert.deepEqual(await problemOf(await door(keyed({ key: 'large', body: 'large' }))), [409, 'answer-not-kept']);
  assert.equal(await effects('large'), 1);
});

test('expired, busy and a database that is away have their own problems', async () => {
  const door = effectsDoor();
  const old = uuidv7(Date.now() - 80 * 3_600_000);
  assert.deepEqual(await problemOf(await door(keyed({ key: old }))), [409, 'key-expired']);

  const holder = await pool.connect();
  try {
    await holder.query('BEGIN');
    await holder.query('LOCK TABLE twiceproof.idempotency_keys IN EXCLUSIVE MODE');
    const response = await effectsDoor({ waitMs: 50 })(keyed({ key: 'busy' }));
    assert.equal(response.headers.get('retry-after'), '1');
    assert.deepEqual(await problemOf(response), [503, 'busy']);
  } finally {
    await holder.query('ROLLBACK');
    holder.release();
  }

  const away = new pg.Pool({ connectionString: 'postgres://x@127.0.0.1:1/x' });
  const response = await effectsDoor({ pool: away })(keyed({ key: 'away' }));
  assert.equal(response.headers.get('retry-after'), '1');
  assert.deepEqual(await problemOf(response), [503, 'unavailable']);
  await away.end();
});

test('a replay is told as such only where that is asked for, and to whoever observes', async () => {
  seen = [];
  for (const replayHeader of [false, true]) {
    const key = `told-${replayHeader}`;
    const door = effectsDoor({ replayHeader });
    assert.equal((await door(keyed({ key }))).headers.get('idempotent-replayed'), null);
    assert.equal((await door(keyed({ key }))).headers.get('idempotent-replayed'), replayHeader ? 'true' : null);
  }
  assert.deepEqual(
    seen.map(({ outcome }) => outcome),
    ['first', 'replayed', 'first', 'replayed'],
  );
});

test('what an observer throws changes no answer', async () => {
  const throwing = effectsDoor({
    observe: () => {
      throw new Error('the observer is broken');
    },
  });
  const warned = once(process, 'warning');
  const first = await wire(await throwing(keyed({ key: 'observed', body: 'observed' })));
  assert.equal(first.status, 201);
  assert.match(String((await warned)[0]), /the observer is broken/);
  assert.deepEqual(await wire(await effectsDoor()(keyed({ key: 'observed', body: 'observed' }))), first);
  assert.equal(await effects('observed'), 1);
});

test('an answer that nobody could be given is an error before anything is written', async () => {
  const broken = effectsDoor({
    handler: async (request, tx) => {
      await writeEffect(request, tx);
      return Response.error();
    },
  });
  assert.equal((await broken(keyed({ key: 'status-0', body: 'status-0' }))).status, 500);
  assert.equal(await effects('status-0'), 0);
  assert.equal((await effectsDoor()(keyed({ key: 'status-0', body: 'status-0' }))).status, 201);
});

test('a retention that is no number is refused when the handler is made, and undefined is the default', async () => {
  assert.throws(() => effectsDoor({ retentionMs: '72h' as unknown as number }), { code: 'TP_OPTION' });
  const old = effectsDoor({ retentionMs: undefined as unknown as number });
  assert.equal((await old(keyed({ key: uuidv7(1_600_000_000_000) }))).status, 409);
});
