import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import type { Answer, Intent } from '../idempotency/intent.ts';
import { migrate } from '../migrations/migrate.ts';
import { transaction } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { uuidv7 } from '../uuid.ts';
import { createHandlerEdge, type HandlerEdgeOptions } from './handler.ts';
import type { Reply } from './reply.ts';

const { url } = await testDatabase();
/** Two pools stand for two processes: nothing in memory is shared but the database. */
const pools = [0, 1].map(() => new pg.Pool({ connectionString: url, max: 10 }));
const [pool] = pools as [pg.Pool, pg.Pool];
after(async () => Promise.all(pools.map(async (each) => each.end())));
await migrate(pool);
await pool.query('CREATE TABLE effects (name text NOT NULL)');

function edge(n = 0, options: Partial<HandlerEdgeOptions> = {}) {
  return createHandlerEdge({ pool: pools[n]!, ...options });
}

function intent(key: string, part: Partial<Intent> & { request?: string } = {}): Intent {
  const { request = 'the request', ...rest } = part;
  const requestHash = createHash('sha256').update(request).digest('hex');
  return { principal: 'alice', operation: 'POST /orders', key, requestHash, hashVersion: 1, ...rest };
}

let runs = 0;
/** Writes one effect and answers something that no other run would. */
function handler(name: string, body = ''): (tx: Tx) => Promise<Answer> {
  return async (tx) => {
    await tx.query('INSERT INTO effects VALUES ($1)', [name]);
    runs += 1;
    return {
      code: 201,
      headers: { location: `/orders/${runs}` },
      body: Buffer.from(body || `run ${runs} \0 é`),
      version: 1,
    };
  };
}

async function effects(name: string): Promise<number> {
  return (await pool.query('SELECT 1 FROM effects WHERE name = $1', [name])).rowCount ?? 0;
}

function answerOf(reply: Reply): Answer {
  assert.ok(reply.outcome === 'answered', reply.outcome);
  return {
    ...reply.answer,
    headers: { ...reply.answer.headers },
    body: reply.answer.body && Buffer.from(reply.answer.body),
  };
}

test('64 requests at once with one key, in two processes: one effect, one answer, byte for byte', async () => {
  for (let round = 0; round < 5; round += 1) {
    const key = `race-${round}`;
    const edges = [edge(0), edge(1)];
    const replies = await Promise.all(
      Array.from({ length: 64 }, async (_, n) => edges[n % 2]!.run(intent(key), handler(key))),
    );
    assert.equal(await effects(key), 1);
    const [first, ...others] = replies.map(answerOf);
    for (const other of others) assert.deepEqual(other, first);
    assert.equal(replies.filter((reply) => reply.outcome === 'answered' && !reply.replayed).length, 1);
    const later = await edge(1).run(intent(key), handler(key));
    assert.deepEqual(answerOf(later), first);
    assert.equal(await effects(key), 1);
  }
});

test('the same key with another request is a mismatch, before and after the first has ended', async () => {
  const one = edge();
  const [first, second] = await Promise.all([
    one.run(intent('mismatch'), handler('mismatch')),
    one.run(intent('mismatch', { request: 'another' }), handler('mismatch')),
  ]);
  assert.deepEqual([first.outcome, second.outcome], ['answered', 'mismatch']);
  const later = await edge(1).run(intent('mismatch', { request: 'another' }), handler('mismatch'));
  assert.equal(later.outcome, 'mismatch');
  assert.equal(await effects('mismatch'), 1);
});

test('a hash of another version is not compared', async () => {
  await edge().run(intent('version'), handler('version'));
  const newer = await edge().run(
    intent('version', { request: 'hashed otherwise', hashVersion: 2 }),
    handler('version'),
  );
  assert.equal(newer.outcome, 'answered');
  assert.equal(await effects('version'), 1);
});

test('the same key of another principal, or for another operation, is another intent', async () => {
  const bodies = new Set<string>();
  for (const part of [
    {},
    { principal: 'bob' },
    { operation: 'POST /refunds' },
    { principal: 'alicePOST /orders', operation: '' },
  ]) {
    const reply = await edge().run(intent('scoped', part), handler('scoped'));
    bodies.add(String(answerOf(reply).body));
  }
  assert.equal(bodies.size, 4);
  assert.equal(await effects('scoped'), 4);
});

test('a handler that throws leaves nothing, and the key is free; so does one that swallows an error', async () => {
  const failing = edge().run(intent('throws'), async (tx) => {
    await handler('throws')(tx);
    throw new Error('out of stock');
  });
  await assert.rejects(failing, /out of stock/);
  const swallowing = edge().run(intent('throws'), async (tx) => {
    const answer = await handler('throws')(tx);
    await tx.query('SELECT 1 / 0').catch(() => {});
    return answer;
  });
  await assert.rejects(swallowing, { code: '25P02' });
  assert.equal(await effects('throws'), 0);
  assert.equal((await edge().run(intent('throws'), handler('throws'))).outcome, 'answered');
  assert.equal(await effects('throws'), 1);
});

test('when the first fails, one of those who waited takes its turn', async () => {
  const one = edge();
  let tries = 0;
  const replies = await Promise.allSettled(
    Array.from({ length: 10 }, async () =>
      one.run(intent('turns'), async (tx) => {
        tries += 1;
        if (tries === 1) throw new Error('the first fails');
        return handler('turns')(tx);
      }),
    ),
  );
  assert.equal(replies.filter(({ status }) => status === 'rejected').length, 1);
  assert.equal(await effects('turns'), 1);
});

test('a key that is held for too long elsewhere, or here, is answered as busy', async () => {
  let release = (): void => {};
  const held = new Promise<void>((resolve) => (release = resolve));
  let entered = (): void => {};
  const inside = new Promise<void>((resolve) => (entered = resolve));
  const here = edge(0, { waitMs: 200 });
  // Its own limit is longer, so that it is not ended while it holds the key.
  const holder = edge(0, { waitMs: 30_000 }).run(intent('busy'), async (tx) => {
    entered();
    await held;
    return handler('busy')(tx);
  });
  await inside;
  const began = performance.now();
  assert.equal((await edge(1, { waitMs: 200 }).run(intent('busy'), handler('busy'))).outcome, 'busy');
  const [waiting, behind] = await Promise.all([
    here.run(intent('busy'), handler('busy')),
    here.run(intent('busy'), handler('busy')),
  ]);
  assert.deepEqual([waiting.outcome, behind.outcome], ['busy', 'busy']);
  assert.ok(performance.now() - began < 5_000);
  release();
  assert.equal((await holder).outcome, 'answered');
  assert.equal(await effects('busy'), 1);
});

test('an old UUIDv7 is looked up, replayed if it is known, and refused as expired if it is not', async () => {
  const bornAt = Date.now() - 80 * 3_600_000;
  const [known, unknown] = [uuidv7(bornAt), uuidv7(bornAt)];
  await edge(0, { now: () => bornAt }).run(intent(known), handler('old'));
  assert.equal((await edge().run(intent(known), handler('old'))).outcome, 'answered');
  assert.equal((await edge().run(intent(unknown), handler('old'))).outcome, 'expired');
  assert.equal(await effects('old'), 1);
});

test('an answer that is too large goes to the first caller only, and the work is never done again', async () => {
  const small = edge(0, { maxAnswerBytes: 10 });
  const first = await small.run(intent('large'), handler('large', 'x'.repeat(11)));
  assert.equal(answerOf(first).body?.length, 11);
  for (const n of [0, 1]) {
    const again = answerOf(await edge(n, { maxAnswerBytes: 10 }).run(intent('large'), handler('large')));
    assert.deepEqual([again.code, again.body, { ...again.headers }], [201, null, { ...answerOf(first).headers }]);
  }
  assert.equal(await effects('large'), 1);
});

test('a handler that asks the pool for another connection is caught, and nothing of it stays', async () => {
  for (const [name, other] of Object.entries({
    query: async () => pool.query("INSERT INTO effects VALUES ('other')"),
    connect: async () => (await pool.connect()).release(),
    transaction: async () => transaction(pool, async (tx) => tx.query("INSERT INTO effects VALUES ('other')")),
  })) {
    const failing = edge().run(intent(`other-${name}`), async (tx) => {
      await other();
      return handler('own')(tx);
    });
    await assert.rejects(failing, { code: 'TP_OTHER_CONNECTION' }, name);
  }
  assert.deepEqual([await effects('own'), await effects('other')], [0, 0]);
});
