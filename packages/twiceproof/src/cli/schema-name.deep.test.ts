import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { createConsumer } from '../consumer/consumer.ts';
import { createInboxKeeper } from '../consumer/inbox-keeper.ts';
import { createKeySweeper } from '../edge/key-sweeper.ts';
import { groupOperation, handlerOperation, plannedOperation } from '../edge/operation.ts';
import { createPendingGuard } from '../edge/pending-guard.ts';
import { removeExpired } from '../idempotency/remove-expired.ts';
import { createKeyStore } from '../idempotency/statements.ts';
import { createInbox } from '../inbox/accept.ts';
import { createHeld } from '../inbox/held.ts';
import * as partitions from '../inbox/partitions.ts';
import { readPositions, writePositions } from '../inbox/position.ts';
import { migrate, migrations } from '../migrations/migrate.ts';
import { createOutbox } from '../outbox/append.ts';
import { countPending, oldestPending, pendingShards } from '../outbox/pending.ts';
import { repair } from '../outbox/repair.ts';
import { changeShards, holdWriters } from '../outbox/reshard.ts';
import { addPartition, publishedBelow, readPartitions } from '../outbox/retention.ts';
import { quotedSchema } from '../schema-name.ts';
import { countParked, dropParked, parkedKeys, releaseParked } from '../sources/parked.ts';
import { createPollSource } from '../sources/poll.ts';
import { rolesSql } from './roles.ts';

/** The rule once more, character by character: to judge the regular expression. */
function isAllowed(name: unknown): boolean {
  if (typeof name !== 'string' || name.length === 0 || name.length > 63) return false;
  const letters = 'abcdefghijklmnopqrstuvwxyz_';
  if (!letters.includes(name[0]!)) return false;
  if (Array.from(name).some((each) => !`${letters}0123456789`.includes(each))) return false;
  return !name.startsWith('pg_') && name !== 'information_schema';
}

/** Records the texts of all statements, and answers none. */
function recorder() {
  const texts: string[] = [];
  const query = async (text: string) => {
    texts.push(text);
    return { rows: [], rowCount: 1, command: 'COMMIT' };
  };
  const client = { query, release: () => {} };
  return { texts, client, pool: { connect: async () => client } };
}

const message = { topic: 't', aggregateId: 'a', type: 'x', payload: Buffer.from('') };
const intent = { principal: 'p', operation: 'o', key: 'k', requestHash: '00', hashVersion: 1 };
const { signal } = new AbortController();
const nothing = async () => ({ code: 201, result: 1 });

/** Everything that takes the name of a schema: each gives the SQL that it makes of it. */
const makers: Record<string, (schema: string) => Promise<string[]>> = {
  quotedSchema: async (schema) => [quotedSchema(schema)],
  migrations: async (schema) => migrations(schema).map(({ sql }) => sql),
  rolesSql: async (schema) => [rolesSql(schema)],
  migrate: async (schema) => recorded(async ({ pool }) => migrate(pool, { schema })),
  createKeyStore: async (schema) =>
    recorded(async ({ client }) => {
      const store = createKeyStore(schema);
      await store.claim(client, [intent]);
      await store.read(client, [intent]);
      await store.store(client, [{ id: '1', answer: { code: 201, headers: null, body: null, version: 1 } }]);
    }),
  createOutbox: async (schema) =>
    recorded(async ({ client }) => createOutbox({ topics: ['t'], schema }).append(client, [message])),
  countPending: async (schema) => recorded(async ({ client }) => countPending(client, 1, schema)),
  oldestPending: async (schema) => recorded(async ({ client }) => oldestPending(client, schema)),
  pendingShards: async (schema) => recorded(async ({ client }) => pendingShards(client, 1, schema)),
  createPollSource: async (schema) =>
    recorded(async ({ pool }) =>
      createPollSource({ pool, schema, named: false }).next({ maxMessages: 1, waitMs: 0, signal }),
    ),
  parkedKeys: async (schema) => recorded(async ({ client }) => parkedKeys(client, 1, schema)),
  countParked: async (schema) => recorded(async ({ client }) => sent(countParked(client, schema))),
  releaseParked: async (schema) =>
    recorded(async ({ pool }) => releaseParked(pool, async () => [], { aggregateId: 'a', schema })),
  dropParked: async (schema) => recorded(async ({ pool }) => dropParked(pool, { aggregateId: 'a', schema })),
  publishedBelow: async (schema) => recorded(async ({ client }) => sent(publishedBelow(client, schema))),
  readPartitions: async (schema) => recorded(async ({ client }) => sent(readPartitions(client, schema))),
  addPartition: async (schema) => recorded(async ({ client }) => addPartition(client, { from: 1n, to: 2n }, schema)),
  holdWriters: async (schema) => recorded(async ({ client }) => holdWriters(client, schema)),
  changeShards: async (schema) => recorded(async ({ client }) => changeShards(client, 2, schema)),
  createInbox: async (schema) =>
    recorded(async ({ client }) => {
      const id = '0190163d-8694-7234-8abc-0123456789ab';
      return refused(createInbox({ schema }).accept(client, { consumer: 'c', id }));
    }),
  createHeld: async (schema) =>
    recorded(async ({ client }) => {
      const held = createHeld({ schema });
      const delivery = { lane: { topic: 't', partition: 0 }, key: undefined, value: Buffer.from(''), headers: [] };
      await held.hold(client, 'c', [{ kind: 'dead', delivery, topicId: 'x', content: 1n, reason: 'r' }]);
      await held.blockedKeys(client, 'c', ['k']);
      await held.settled(client, 'c', [{ id: 'x', content: 1n }]);
      await held.settleLate(client, 'c', [{ id: 'x', content: 1n }]);
      await held.asked(client, 'c', 0n);
      await held.firstOfKeys(client, 'c', ['k'], 1);
      await held.take(client, [1n]);
      await held.keep(client, 'c', [{ seq: 1n, kind: 'parked', aggregateId: 'k', reason: 'r' }]);
      await held.list(client);
      await held.find(client);
      await sent(held.tally(client));
      await held.groups(client);
      await held.ask(client, [1n], 'redrive');
      await held.drop(client, [1n]);
      await held.counts(client, 'c');
    }),
  'partitions of the inbox': async (schema) =>
    recorded(async ({ client, texts }) => {
      await sent(partitions.readInbox(client, schema));
      await partitions.openInbox(client, 1, schema);
      await partitions.raiseFloor(client, 1, schema);
      await partitions.lockBounds(client, schema);
      await partitions.addInboxPartition(client, { fromMs: 1, toMs: 2 }, schema);
      await partitions.raiseCeiling(client, 1, schema);
      texts.push(...partitions.forgetPartition({ name: 'x', fromMs: 1, toMs: 2, state: 'attached' }, schema));
    }),
  writePositions: async (schema) =>
    recorded(async ({ client }) => {
      await writePositions(client, 'c', [{ topic: 't', partition: 0, topicId: 'x', next: 1n }], schema);
      await readPositions(client, 'c', [], schema);
    }),
  createConsumer: async (schema) =>
    recorded(async ({ pool }) =>
      createConsumer({
        pool,
        schema,
        name: 'c',
        topics: ['t'],
        transport: {} as never,
        handler: { set: async () => {} },
      }),
    ),
  repair: async (schema) => recorded(async ({ client }) => sent(repair(client, schema))),
  removeExpired: async (schema) =>
    recorded(async ({ client }) =>
      removeExpired(client, { blocks: { from: 0, to: 1 }, retentionMs: 1, atMost: 1, schema }),
    ),
  handlerOperation: async (schema) =>
    recorded(async ({ pool }) => handlerOperation({ pool, schema, name: 'o', execute: nothing })),
  groupOperation: async (schema) =>
    recorded(async ({ pool }) => groupOperation({ pool, schema, name: 'o', effects: async () => [] })),
  plannedOperation: async (schema) =>
    recorded(async ({ pool }) =>
      plannedOperation({
        pool,
        schema,
        name: 'o',
        plan: () => ({ outcome: { code: 201, result: 1 }, row: {} }),
        columns: {},
        statement: 'DELETE FROM won RETURNING 1',
      }),
    ),
};

/** It cannot go on without an answer; what it has sent is what counts. */
async function sent(work: Promise<unknown>): Promise<unknown> {
  return work.catch((error: unknown) => {
    if (error instanceof TypeError) return undefined;
    throw error;
  });
}

/** What it was answered is no answer, which it says; what it has sent is what counts. */
async function refused(work: Promise<unknown>): Promise<unknown> {
  return work.catch((error: unknown) => {
    if ((error as { code?: unknown }).code === 'TP_SCHEMA_NAME') throw error;
  });
}

async function recorded(work: (to: ReturnType<typeof recorder>) => Promise<unknown>): Promise<string[]> {
  const to = recorder();
  try {
    await work(to);
  } catch (error) {
    // What it has sent before it refused would be too much already.
    assert.deepEqual(to.texts, []);
    throw error;
  }
  return to.texts;
}

const right = fc.stringMatching(/^[a-z_0-9]{1,64}$/);
const sql = ['a b', 'a"b', '"', '""', 'a"; DROP SCHEMA twiceproof CASCADE; --', "a'", 'a;b', 'a.b', 'a--', 'a/*', '$$'];
const blank = ['', ' ', 'a\0', 'a\n', '\na', 'a\r', '\ufeffa', '\u202ea', '1a', '-a', 'a-b', 'a:b', ':"schema"'];
const likeLetters = ['A', 'É', 'ı', 'ａ', 'а', 'a\u0301', '\ud800', '🔑'];
const reserved = ['pg_', 'pg_catalog', 'pg_temp', 'information_schema', 'public', 'select', 'user', '_', '__proto__'];
const long = ['x'.repeat(63), 'x'.repeat(64), 'é'.repeat(32), 'x'.repeat(100_000)];
const awkward = fc.constantFrom(...sql, ...blank, ...likeLetters, ...reserved, ...long);
const nearlyRight = fc
  .tuple(right, fc.nat(64), fc.oneof(fc.string({ unit: 'binary', maxLength: 2 }), awkward))
  .map(([name, at, inserted]) => name.slice(0, at) + inserted + name.slice(at));
/** From JavaScript, where nobody checks types. */
const noText = fc.constantFrom<unknown[]>(
  null,
  0,
  1,
  1n,
  true,
  [],
  ['a'],
  [['a']],
  {},
  Symbol.iterator,
  () => 'a',
  new Date(0),
) as fc.Arbitrary<never>;
/** Another text each time that it is asked. */
const changing = fc.constant('a"; DROP SCHEMA twiceproof; --').map((later) => {
  const texts = ['a', later];
  return { toString: () => texts.shift() ?? later } as never;
});
const anyName: fc.Arbitrary<string> = fc.oneof(
  { weight: 4, arbitrary: right },
  { weight: 6, arbitrary: nearlyRight },
  { weight: 3, arbitrary: awkward },
  { weight: 3, arbitrary: fc.string({ unit: 'binary', maxLength: 70 }) },
  { weight: 1, arbitrary: noText },
  { weight: 1, arbitrary: changing },
);

test('20,000 names: each is refused by name, or stands in quotes', () => {
  fc.assert(
    fc.property(anyName, (name) => {
      if (isAllowed(name)) assert.equal(quotedSchema(name), `"${name}"`);
      else assert.throws(() => quotedSchema(name), { code: 'TP_SCHEMA_NAME' });
    }),
    { numRuns: 20_000 },
  );
});

for (const [maker, make] of Object.entries(makers)) {
  test(`${maker}: a name that is refused gets into no query, and any other stands there in quotes and changes nothing else`, async () => {
    const model = await make('model_schema');
    await fc.assert(
      fc.asyncProperty(anyName, async (name) => {
        if (!isAllowed(name)) return assert.rejects(async () => make(name), { code: 'TP_SCHEMA_NAME' });
        const expected = model.map((text) => text.replaceAll('"model_schema"', `"${name}"`));
        assert.deepEqual(await make(name), expected);
      }),
      { numRuns: 2_000 },
    );
  });
}

test('the services refuse it in their first pass, and nothing of it is sent', async () => {
  for (const create of [createKeySweeper, createPendingGuard, createInboxKeeper]) {
    const { texts, pool } = recorder();
    await assert.rejects(async () => create({ pool, schema: 'a"b', ttlMs: 1 }).runOnce(), { code: 'TP_SCHEMA_NAME' });
    assert.ok(texts.every((text) => !text.includes('a"b')));
  }
});

test('the commands refuse it before they look for the database', async () => {
  const names = fc
    .sample(awkward, { numRuns: 24, seed: 1 })
    .filter((name) => !isAllowed(name) && !name.includes('\0') && name.length < 1_000);
  assert.ok(names.length > 10);
  const ended = async (args: string[], env: NodeJS.ProcessEnv = {}): Promise<[code: unknown, stderr: string]> => {
    const child = spawn(process.execPath, [join(import.meta.dirname, 'main.ts'), ...args], {
      // Nobody listens there: whoever asks it ends with 3.
      env: { ...process.env, DATABASE_URL: 'postgres://x@127.0.0.1:1/x', ...env },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let stderr = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
    const [code] = (await once(child, 'close')) as [unknown];
    return [code, stderr];
  };
  for (const [n, name] of names.entries()) {
    const args = [['migrate'], ['sql'], ['sql', '--roles']][n % 3]!;
    const [code, stderr] = await ended([...args, `--schema=${name}`]);
    assert.deepEqual(
      [code, /TP_SCHEMA_NAME/.test(stderr)],
      [2, true],
      `${args.join(' ')} ${JSON.stringify(name)}: ${stderr}`,
    );
  }
  assert.equal((await ended(['migrate'], { TWICEPROOF_SCHEMA: 'No' }))[0], 2);
  assert.equal((await ended(['migrate'], { TWICEPROOF_SCHEMA: '' }))[0], 3, 'no name is the usual one');
  assert.equal((await ended(['migrate', '--shards=0']))[0], 2);
});
