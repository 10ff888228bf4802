import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { createConsumer } from '../consumer/consumer.ts';
import { createInboxKeeper } from '../consumer/inbox-keeper.ts';
import { createKeySweeper } from '../edge/key-sweeper.ts';
import { handlerOperation } from '../edge/operation.ts';
import { createPendingGuard } from '../edge/pending-guard.ts';
import { createHeld } from '../inbox/held.ts';
import { createOutbox } from '../outbox/append.ts';
import { countPending, oldestPending } from '../outbox/pending.ts';
import { dropParked, parkedKeys, releaseParked } from '../sources/parked.ts';
import { cursorTable, endStuckRelays } from '../sources/poll-statements.ts';
import { createPollSource } from '../sources/poll.ts';
import { transaction } from '../transaction.ts';
import { createMemoryBroker } from '../transports/memory.ts';
import { uuidv7 } from '../uuid.ts';
import { toRecord } from '../wire.ts';
import { grants, rolesSql } from './roles.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());

function twiceproof(args: string[], env: NodeJS.ProcessEnv = {}) {
  return spawnSync(process.execPath, [join(import.meta.dirname, 'main.ts'), ...args], {
    encoding: 'utf8',
    env: { ...process.env, DATABASE_URL: url, ...env },
  });
}

test('migrate applies once, says what it did, and can be read by a machine', () => {
  const first = twiceproof(['migrate', '--json', '--shards', '2', '--schema', 'by_cli']);
  assert.equal(first.status, 0, first.stderr);
  const { applied } = JSON.parse(first.stdout) as { applied: string[] };
  assert.ok(applied.includes('0001_outbox.sql'));
  const second = twiceproof(['migrate', '--schema', 'by_cli']);
  assert.deepEqual([second.status, second.stdout], [0, 'Nothing to do: all migrations are applied.\n']);
  assert.equal(twiceproof(['migrate', '--shards', '2', '--schema', 'by_cli']).stderr, '');
  const other = twiceproof(['migrate', '--shards', '8', '--schema', 'by_cli']);
  assert.equal(other.status, 0);
  assert.match(other.stderr, /has 2 shards, not 8.*outbox reshard 8/);
});

test('what sql prints leaves what migrate leaves, ready to be used, and migrate then finds nothing to do', async () => {
  const { stdout } = twiceproof(['sql', '--schema', 'by_hand', '--shards', '3']);
  await pool.query(stdout);
  assert.match(twiceproof(['migrate', '--schema', 'by_hand']).stdout, /Nothing to do/);
  const { rows } = await pool.query(
    'SELECT shards, (SELECT count(*)::int FROM by_hand.relay_cursor) AS cursors FROM by_hand.settings',
  );
  assert.deepEqual(rows, [{ shards: 3, cursors: 3 }]);
  twiceproof(['migrate', '--schema', 'by_tool']);
  const tables = async (schema: string): Promise<unknown[]> =>
    (
      await pool.query<{ name: string }>(
        `SELECT table_name || '.' || column_name || ' ' || data_type AS name FROM information_schema.columns
          WHERE table_schema = $1 ORDER BY 1`,
        [schema],
      )
    ).rows.map(({ name }) => name);
  assert.ok((await tables('by_hand')).length > 20);
  assert.deepEqual(await tables('by_hand'), await tables('by_tool'));
});

test('wrong calls say what is wrong, and exit with 2; a database that is away, with 3', () => {
  for (const [args, said] of [
    [[], /a command is needed/],
    [['migrat'], /there is no command 'migrat'/],
    [['sql', '--rolls'], /--rolls/],
    [['sql', '--schema', 'No"Good'], /TP_SCHEMA_NAME/],
    [['migrate', '--shards', 'many'], /--shards is a whole number/],
    [['migrate', '--shards', '5000'], /TP_OPTION/],
    [['outbox'], /a command is needed: pending, parked/],
    [['outbox', 'prone'], /there is no command 'prone': pending/],
    [['outbox', 'pending', 'now'], /unexpected 'now'/],
    [['outbox', 'pending', '--shards', '3'], /takes no --shards/],
    [['outbox', 'parked', '--payload'], /--payload needs --aggregate/],
    [['outbox', 'release', '--name', '/x'], /--aggregate is needed/],
    [['outbox', 'release', '--aggregate', 'a'], /--name is needed, or TWICEPROOF_NAME/],
    [['outbox', 'drop', '--yes'], /either --message or --aggregate/],
    [['outbox', 'drop', '--message', 'x'], /the id of a message/],
    [['outbox', 'prune', '--retention-hours', '-1'], /--retention-hours/],
    [['outbox', 'prune', '--brokers', ''], /--brokers is needed, or KAFKA_BROKERS.* or --retention-hours/],
    [['outbox', 'republish'], /--since is needed/],
    [['outbox', 'republish', '--since', 'yesterday'], /a time with its zone/],
    [['outbox', 'republish', '--since', '2026-02-30T00:00:00Z'], /a time with its zone/],
    [['outbox', 'reshard'], /N is needed/],
    [['outbox', 'reshard', '0'], /from 1 to 1024/],
  ] as const) {
    const { status, stderr } = twiceproof([...args]);
    assert.equal(status, 2, args.join(' '));
    assert.match(stderr, said);
  }
  assert.equal(twiceproof(['migrate'], { DATABASE_URL: '' }).status, 2);
  const away = twiceproof(['migrate'], { DATABASE_URL: 'postgres://me:secret@127.0.0.1:1/x' });
  assert.equal(away.status, 3);
  assert.ok(!away.stderr.includes('secret'));
});

test('help: of all, and of each command with its flags', () => {
  const all = twiceproof(['--help']).stdout;
  const names = [...all.matchAll(/^ {2}((?:outbox |held )?[a-z]+)/gm)].map(([, name]) => name!);
  assert.deepEqual(names, [
    'migrate',
    'sql',
    ...['pending', 'parked', 'release', 'drop', 'prune', 'republish', 'repair', 'reshard'].map(
      (name) => `outbox ${name}`,
    ),
    ...['list', 'show', 'redrive', 'release', 'drop'].map((name) => `held ${name}`),
  ]);
  for (const name of names.slice(2)) {
    const { status, stdout } = twiceproof([...name.split(' '), '--help']);
    assert.equal(status, 0);
    assert.match(stdout, new RegExp(`^twiceproof ${name}.* \\[flags\\]\n\n`));
    assert.match(stdout, /--schema NAME .*TWICEPROOF_SCHEMA/);
  }
});

test('a database without the tables is told from one that is broken', () => {
  const { status, stderr } = twiceproof(['outbox', 'pending', '--schema', 'not_there']);
  assert.equal(status, 1);
  assert.match(stderr, /not_there.*does not exist\n.*twiceproof migrate/);
});

/** All that a relay does, and what an operator does for it: look, read, park, advance, watch, count, release, drop. */
async function useAsRelay(relay: pg.Pool): Promise<void> {
  const outbox = createOutbox({ topics: ['t'] });
  for (const text of ['1', '2', '3']) {
    const message = { topic: 't', aggregateId: text, type: 'added', payload: Buffer.from(text) };
    await transaction(pool, (tx) => outbox.append(tx, [message]));
  }
  const source = createPollSource({
    pool: relay,
    times: { publishDeadlineMs: 1, idleTimeoutMs: 2_000, watchdogMs: 3_000 },
  });
  await source.check();
  const batch = await source.next({ maxMessages: 10, waitMs: 0, signal: new AbortController().signal });
  const count = batch!.messages.length;
  assert.ok(count >= 3);
  await batch!.advance({
    done: count,
    parked: [
      { index: count - 2, reason: 'no' },
      { index: count - 1, reason: 'no' },
    ],
  });
  const client = await relay.connect();
  const { rows } = await client.query<{ oid: string }>(cursorTable('"twiceproof"'));
  await client.query(endStuckRelays(rows[0]!.oid, 60_000));
  client.release();
  assert.equal(await countPending(relay, 10), 0);
  assert.equal(await oldestPending(relay), undefined);
  assert.equal((await parkedKeys(relay, 10)).length, 2);
  const released = await releaseParked(relay, async (all) => all.map(() => ({ outcome: 'acknowledged' })), {
    aggregateId: '2',
  });
  assert.deepEqual(released, { outcome: 'released', messages: 1 });
  assert.deepEqual(await dropParked(relay, { aggregateId: '3' }), { outcome: 'dropped', messages: 1 });
}

/** All that a consumer does, and what an operator does for it: accept, hold, settle, write its position, redrive, drop. */
async function useAsConsumer(consumerPool: pg.Pool): Promise<void> {
  const broker = createMemoryBroker();
  broker.createTopic('t', { partitions: 1 });
  const ids = [uuidv7(), uuidv7(), uuidv7(), uuidv7(Date.now() - 1e10), uuidv7(Date.now() - 1e10)];
  const records = ids.map((id, n) => {
    const message = { topic: 't', aggregateId: `${n}`, type: 'x', payload: Buffer.from(`${n}`) };
    return toRecord({ ...message, id, createdAt: new Date() }, '/x');
  });
  await broker
    .transport()
    .publisher()
    .publish([...records, records[0]!]);
  const stopping = new AbortController();
  const held = createHeld();
  let isBroken = true;
  let isDone = false;
  const handler = {
    each: async (_: unknown, { aggregateId }: { aggregateId: string }) => {
      if (isBroken && aggregateId !== '0') throw new Error('no');
    },
  };
  const troubles: unknown[] = [];
  const running = createConsumer({
    pool: consumerPool,
    transport: broker.transport(),
    name: 'c',
    topics: ['t'],
    handler,
    wishesEveryMs: 10,
    observe: () => (isDone = true),
    onTrouble: (error) => troubles.push(error),
  }).run(stopping.signal);
  const wait = async (isSo: () => boolean | Promise<boolean>): Promise<void> => {
    const deadline = performance.now() + 20_000;
    while (!(await isSo())) {
      assert.ok(performance.now() < deadline, `in vain: ${String(isSo)}`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  await wait(() => isDone);
  isBroken = false;
  const rows = await transaction(consumerPool, (tx) => held.list(tx));
  assert.deepEqual(
    rows.map(({ kind }) => kind),
    ['parked', 'parked', 'late', 'late'],
  );
  await transaction(consumerPool, (tx) => held.ask(tx, [rows[0]!.seq, rows[2]!.seq], 'redrive'));
  await transaction(consumerPool, (tx) => held.ask(tx, [rows[1]!.seq], 'release'));
  await wait(async () => (await transaction(consumerPool, (tx) => held.list(tx))).length === 1);
  await transaction(consumerPool, async (tx) => {
    const [row] = await held.take(tx, [rows[3]!.seq]);
    await held.settleLate(tx, 'c', [{ ...row!, id: row!.id! }]);
  });
  stopping.abort();
  await running;
  assert.ok(
    troubles.every((error) => String(error).includes('TP_HANDLER')),
    String(troubles[0]),
  );
}

test('each role can do its work with what it is granted, and has nothing else', async () => {
  twiceproof(['migrate']);
  await pool.query(rolesSql());
  await pool.query(rolesSql());
  await pool.query('CREATE TABLE things (n int); GRANT INSERT ON things TO tp_app');
  const as = (role: string) => new pg.Pool({ connectionString: url, max: 2, options: `-c role=${role}` });

  const app = as('tp_app');
  const outbox = createOutbox({ topics: ['t'] });
  const operation = handlerOperation({
    pool: app,
    name: 'things.add',
    execute: async (tx, n: number) => {
      await tx.query('INSERT INTO things VALUES ($1)', [n]);
      await outbox.append(tx, [{ topic: 't', aggregateId: 'a', type: 'added', payload: Buffer.from('x') }]);
      return { code: 201, result: n };
    },
  });
  for (const replayed of [false, true]) {
    const reply = await operation.run({ principal: 'p', key: 'k' }, 1);
    assert.ok(reply.outcome === 'answered' && reply.replayed === replayed);
  }
  for (const forbidden of [
    'SELECT 1 FROM twiceproof.outbox',
    'DELETE FROM twiceproof.outbox',
    'UPDATE twiceproof.idempotency_keys SET principal = 1',
    'DELETE FROM twiceproof.answers',
  ]) {
    await assert.rejects(app.query(forbidden), { code: '42501' }, forbidden);
  }
  await createPendingGuard({ pool: app }).runOnce();
  await app.end();

  const relay = as('tp_relay');
  await useAsRelay(relay);
  for (const forbidden of [
    'DELETE FROM twiceproof.outbox',
    'UPDATE twiceproof.outbox SET topic = topic',
    'TRUNCATE twiceproof.outbox',
    'INSERT INTO twiceproof.outbox DEFAULT VALUES',
    'DELETE FROM twiceproof.relay_cursor',
    'UPDATE twiceproof.relay_parked SET reason = reason',
    'UPDATE twiceproof.settings SET shards = 2',
    'SELECT 1 FROM twiceproof.idempotency_keys',
  ]) {
    await assert.rejects(relay.query(forbidden), { code: '42501' }, forbidden);
  }
  await relay.end();

  await createInboxKeeper({ pool, ttlMs: 3_600_000 }).runOnce();
  const consumer = as('tp_consumer');
  await useAsConsumer(consumer);
  for (const forbidden of [
    'DELETE FROM twiceproof.inbox',
    'UPDATE twiceproof.inbox SET content_hash = 0',
    'UPDATE twiceproof.inbox_bounds SET floor = floor',
    'DELETE FROM twiceproof.inbox_position',
    'DELETE FROM twiceproof.held_settled',
    'SELECT 1 FROM twiceproof.outbox',
  ]) {
    await assert.rejects(consumer.query(forbidden), { code: '42501' }, forbidden);
  }
  // Forgetting is for the owner.
  await assert.rejects(createInboxKeeper({ pool: consumer, ttlMs: 60_000 }).runOnce(), { code: '42501' });
  await consumer.end();

  const sweeper = as('tp_sweeper');
  await createKeySweeper({ pool: sweeper }).runOnce();
  await sweeper.end();

  const { rows } = await pool.query<{ grantee: string; found: string }>(
    `SELECT grantee, string_agg(DISTINCT privilege_type || ' ' || table_name, ', ' ORDER BY privilege_type || ' ' || table_name) AS found
       FROM information_schema.role_table_grants WHERE table_schema = 'twiceproof' AND grantee LIKE 'tp\\_%' GROUP BY grantee`,
  );
  for (const { grantee, found } of rows) {
    const expected = grants[grantee]!.flatMap((right) => {
      const [rights = '', table = ''] = right.split(' ON ');
      return rights.split(', ').map((each) => `${each} ${table}`);
    });
    assert.deepEqual(found.split(', ').toSorted(), expected.toSorted(), grantee);
  }
  assert.equal(rows.length, Object.keys(grants).length);
  // Roles belong to the whole server, which may be a person's own.
  await pool.query(`DROP OWNED BY ${Object.keys(grants).join(', ')}`);
  await pool.query(`DROP ROLE ${Object.keys(grants).join(', ')}`);
});
