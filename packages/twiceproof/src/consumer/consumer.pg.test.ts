import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import type { Pool } from '../connection.ts';
import { TwiceproofError } from '../errors.ts';
import { contentHash, createInbox } from '../inbox/accept.ts';
import { createHeld, type HeldRow } from '../inbox/held.ts';
import { migrate } from '../migrations/migrate.ts';
import { createOutbox } from '../outbox/append.ts';
import { transaction } from '../transaction.ts';
import { createMemoryBroker } from '../transports/memory.ts';
import type { AssignedLane, OutgoingRecord, Subscription, Transport } from '../transport.ts';
import type { Tx } from '../tx.ts';
import { uuidv7 } from '../uuid.ts';
import { toRecord, type ReceivedMessage } from '../wire.ts';
import { createConsumer, type ConsumerOptions, type ConsumerPass } from './consumer.ts';
import { createInboxKeeper } from './inbox-keeper.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
pool.on('error', () => {});
after(async () => pool.end());
await migrate(pool);
await createInboxKeeper({ pool, ttlMs: 3_600_000, partitionMs: 3_600_000 }).runOnce();
// Without any unique key: it shows what the inbox alone prevents.
await pool.query('CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, name text, text text, xid xid8)');
const heldRows = createHeld();

const broker = createMemoryBroker();
const transport = broker.transport();
const publisher = transport.publisher();
after(async () => transport.close());

/** Each test has a topic and a consumer of its own, both under this name. */
let name = '';
let tests = 0;
beforeEach(() => {
  name = `test-${(tests += 1)}`;
  broker.createTopic(name, { partitions: 1 });
});

/** `a1` is the first of aggregate `a`. */
function messageOf(text: string) {
  return { topic: name, aggregateId: text.replace(/\d+$/, ''), type: 'said', payload: Buffer.from(text) };
}

function record(text: string, id = uuidv7()): OutgoingRecord {
  return toRecord({ ...messageOf(text), id, createdAt: new Date() }, '/test');
}

async function publish(...records: (string | OutgoingRecord)[]): Promise<void> {
  await publisher.publish(records.map((each) => (typeof each === 'string' ? record(each) : each)));
}

const textOf = ({ payload }: ReceivedMessage): string => Buffer.from(payload).toString();

async function write(tx: Tx, messages: readonly ReceivedMessage[]): Promise<void> {
  await tx.query('INSERT INTO effects (name, text, xid) SELECT $1, unnest($2::text[]), pg_current_xact_id()', [
    name,
    messages.map(textOf),
  ]);
}

async function effects(): Promise<string[]> {
  const { rows } = await pool.query<{ text: string }>('SELECT text FROM effects WHERE name = $1 ORDER BY n', [name]);
  return rows.map(({ text }) => text);
}

async function held(): Promise<HeldRow[]> {
  return transaction(pool, (tx) => heldRows.list(tx, { consumer: name }));
}

const heldTexts = async (): Promise<string[]> =>
  (await held()).map(({ kind, delivery }) => `${kind} ${Buffer.from(delivery.value).toString()}`);

interface Running {
  passes: ConsumerPass[];
  troubles: unknown[];
  stop(): Promise<void>;
}

function start(options: Partial<ConsumerOptions> = {}): Running {
  const passes: ConsumerPass[] = [];
  const troubles: unknown[] = [];
  const stopping = new AbortController();
  const consumer = createConsumer({
    pool,
    transport,
    name,
    topics: [name],
    handler: { set: write },
    observe: (pass) => passes.push(pass),
    onTrouble: (error) => troubles.push(error),
    wishesEveryMs: 20,
    ...options,
  });
  const running = consumer.run(stopping.signal);
  const stop = async (): Promise<void> => {
    stopping.abort();
    await running;
  };
  return { passes, troubles, stop };
}

async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + 20_000;
  while (!(await isSo())) {
    assert.ok(performance.now() < deadline, `in vain: ${String(isSo)}`);
    await delay(5);
  }
}

const codesOf = ({ troubles }: Running): unknown[] => troubles.map((error) => (error as { code?: unknown }).code);

const received = ({ passes }: Running): number => passes.reduce((sum, pass) => sum + pass.received, 0);

/** Runs until so many messages are dealt with. */
async function consume(count: number, options: Partial<ConsumerOptions> = {}): Promise<Running> {
  const running = start(options);
  await until(() => received(running) >= count);
  await running.stop();
  return running;
}

/** What the group knows of its lane, and what the log has. */
async function laneOf(group = name): Promise<AssignedLane> {
  let lane: AssignedLane | undefined;
  const onAssigned = async (lanes: readonly AssignedLane[]) => {
    lane = lanes[0];
    return [];
  };
  await (await transport.subscribe({ group, topics: [name], onAssigned })).close();
  return lane!;
}

test('a batch is one transaction: inbox, effects, position; then the broker is told', async () => {
  const texts = Array.from({ length: 50 }, (_, n) => `${'abc'[n % 3]}${n}`);
  await publish(...texts);
  const { passes, troubles } = await consume(50);
  assert.deepEqual(await effects(), texts);
  assert.equal(passes.length, 1);
  const { first, transactions, duplicates, held: none, agesMs, lanes } = passes[0]!;
  assert.deepEqual([first, transactions, duplicates, none, agesMs.length], [50, 1, 0, {}, 50]);
  assert.deepEqual(lanes, [{ topic: name, partition: 0 }]);
  const { rows } = await pool.query(
    `SELECT count(DISTINCT xid)::int AS xids, (SELECT count(*)::int FROM twiceproof.inbox WHERE consumer = $1) AS inbox,
       (SELECT next_offset FROM twiceproof.inbox_position WHERE consumer = $1) AS next FROM effects WHERE name = $1`,
    [name],
  );
  assert.deepEqual(rows, [{ xids: 1, inbox: 50, next: '50' }]);
  assert.equal((await laneOf()).committed, 50n);
  assert.deepEqual(troubles, []);
});

test('the age of a message is from the time that it bears to the return of COMMIT', async () => {
  const slowCommitMs = 200;
  await pool.query(`DROP TABLE IF EXISTS slow; CREATE TABLE slow (n int);
    CREATE OR REPLACE FUNCTION doze() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN PERFORM pg_sleep(${slowCommitMs / 1_000}); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION doze()`);
  const createdAt = new Date(Date.now() - 5_000);
  await publish(toRecord({ ...messageOf('a1'), id: uuidv7(), createdAt }, '/test'));
  let handledAfterMs = 0;
  const set = async (tx: Tx): Promise<void> => {
    await tx.query('INSERT INTO slow VALUES (1)');
    handledAfterMs = Date.now() - createdAt.getTime();
  };
  const { passes } = await consume(1, { handler: { set } });
  const [age = 0] = passes[0]!.agesMs;
  assert.ok(handledAfterMs >= 5_000 && age >= handledAfterMs + slowCommitMs - 5, `${handledAfterMs}, then ${age}`);
  assert.ok(age <= Date.now() - createdAt.getTime());
});

test('the broker is told when all is committed, and of all that was', async () => {
  const told: unknown[] = [];
  const subscribe: Transport['subscribe'] = async (options) => {
    const subscription = await transport.subscribe(options);
    const settle: Subscription['settle'] = async (deliveries) => {
      told.push([deliveries.length, (await effects()).length, (await held()).length]);
      return subscription.settle(deliveries);
    };
    return { ...subscription, settle };
  };
  await publish('a1', 'b1', 'c1', 'd1');
  await consume(4, { transport: { ...transport, subscribe }, handler: failing({ c1: () => new Error('no') }) });
  assert.deepEqual(told, [[4, 3, 1]]);
});

test('one at a time, in order, and what comes again changes nothing', async () => {
  const records = ['a1', 'b1', 'a2'].map((text) => record(text));
  await publish(...records, records[0]!, ...records);
  const each = async (tx: Tx, message: ReceivedMessage): Promise<void> => write(tx, [message]);
  const { passes } = await consume(7, { handler: { each } });
  assert.deepEqual(await effects(), ['a1', 'b1', 'a2']);
  assert.deepEqual([passes[0]!.first, passes[0]!.duplicates], [3, 4]);
  await publish(...records);
  const again = await consume(3, { group: `${name}-renamed` });
  assert.deepEqual([again.passes[0]!.duplicates, await effects()], [3, ['a1', 'b1', 'a2']]);
});

/** Fails for these texts, in the way that they say. */
function failing(ways: Record<string, () => unknown>): {
  set(tx: Tx, those: readonly ReceivedMessage[]): Promise<void>;
} {
  return {
    set: async (tx, messages) => {
      await write(tx, messages);
      for (const message of messages) if (ways[textOf(message)]) throw ways[textOf(message)]!();
    },
  };
}

test('a poison message is found by halving and parked; its key waits behind it, neighbours go on', async () => {
  const texts = Array.from({ length: 64 }, (_, n) => `${'abcd'[n % 4]}${n}`);
  await publish(...texts);
  const handler = failing({ b21: () => new TypeError('cannot') });
  const { passes, troubles } = await consume(64, { handler });
  const behind = texts.filter((text) => text.startsWith('b') && Number(text.slice(1)) >= 21);
  assert.deepEqual(
    await effects(),
    texts.filter((text) => !behind.includes(text)),
  );
  assert.deepEqual(
    await heldTexts(),
    behind.map((text) => `parked ${text}`),
  );
  const reasons = (await held()).map(({ reason }) => reason);
  assert.deepEqual([reasons[0], reasons[1]], ['TypeError: cannot', 'behind one of its key']);
  assert.deepEqual(passes[0]!.held, { parked: behind.length });
  assert.ok(passes[0]!.transactions <= 2 + 2 * Math.log2(64), String(passes[0]!.transactions));
  assert.deepEqual([troubles.length, (troubles[0] as TwiceproofError).code], [1, 'TP_HANDLER']);
  // Also those of later batches, and it is all settled.
  await publish('b99', 'a99');
  await consume(2);
  assert.equal((await effects()).at(-1), 'a99');
  assert.equal((await heldTexts()).at(-1), 'parked b99');
  assert.equal((await laneOf()).committed, 66n);
});

test('as a dead letter it is put aside alone, and comes as a duplicate when it comes again', async () => {
  const poison = record('a2');
  await publish('a1', poison, 'a3', poison);
  const handler = failing({ a2: () => 'only a text' });
  const { passes } = await consume(4, { handler, onFailure: 'dead-letter' });
  assert.deepEqual([await effects(), await heldTexts()], [['a1', 'a3'], ['dead a2']]);
  assert.equal((await held())[0]!.reason, 'only a text');
  assert.deepEqual([passes[0]!.held, passes[0]!.duplicates], [{ dead: 1 }, 1]);
});

test('an error that may pass is tried again, some times, and then it is as any other', async () => {
  let left = 2;
  const passing = Object.assign(new Error('not now'), { retryable: true });
  const handler = failing({ a1: () => ((left -= 1) >= 0 ? passing : undefined), b1: () => passing });
  const patient = {
    set: async (tx: Tx, messages: readonly ReceivedMessage[]) =>
      handler.set(tx, messages).catch((error: unknown) => {
        if (error !== undefined) throw error;
      }),
  };
  await publish('a1');
  const { troubles } = await consume(1, { handler: patient });
  assert.deepEqual([await effects(), await heldTexts()], [['a1'], []]);
  assert.deepEqual(troubles, [passing, passing]);
  await publish('b1');
  const { passes } = await consume(1, { handler: patient, retryForMs: 300 });
  assert.deepEqual(await heldTexts(), ['parked b1']);
  assert.ok(passes[0]!.tookMs >= 300 && passes[0]!.transactions > 3, JSON.stringify(passes));
});

test('the database goes away in the midst of a handler: it waits, goes on when it is back, and holds nothing', async () => {
  const admin = new pg.Client(Object.assign(new URL(url), { pathname: '/postgres' }).href);
  await admin.connect();
  const database = new URL(url).pathname.slice(1);
  let runs = 0;
  const handler = {
    set: async (tx: Tx, messages: readonly ReceivedMessage[]) => {
      await write(tx, messages);
      if ((runs += 1) > 1) return;
      await admin.query(`ALTER DATABASE ${database} ALLOW_CONNECTIONS false`);
      await admin.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1', [database]);
      await tx.query('SELECT 1');
    },
  };
  await publish('a1', 'b1', 'c1');
  const running = start({ handler });
  await until(() => running.troubles.length >= 3);
  await admin.query(`ALTER DATABASE ${database} ALLOW_CONNECTIONS true`);
  await until(() => received(running) === 3);
  await running.stop();
  await admin.end();
  assert.deepEqual([await effects(), await heldTexts()], [['a1', 'b1', 'c1'], []]);
  assert.deepEqual([runs, running.passes[0]!.first], [2, 3]);
});

test('a database that falls silent while lanes are given out is told of, and asked again', async () => {
  let connects = 0;
  const never = Promise.withResolvers<pg.PoolClient>();
  const silentAtFirst: Pool = { connect: async () => ((connects += 1) === 1 ? never.promise : pool.connect()) };
  await publish('a1');
  const { troubles } = await consume(1, { pool: silentAtFirst, handlerTimeoutMs: 100 });
  assert.deepEqual(await effects(), ['a1']);
  assert.ok(troubles.length > 0 && connects > 1, `${troubles.length} troubles`);
  never.resolve(await pool.connect()); // And is given back by whoever it comes to.
});

test('the server ends a transaction that stands idle for longer than a handler may take', async () => {
  let found: unknown;
  const set = async (tx: Tx, messages: readonly ReceivedMessage[]): Promise<void> => {
    await write(tx, messages);
    const { rows } = await tx.query("SELECT current_setting('idle_in_transaction_session_timeout') AS idle");
    found = rows[0]!['idle'];
  };
  await publish('a1', 'b1');
  await consume(2, { handler: { set }, handlerTimeoutMs: 4_000, idleTimeoutMs: 5_000 });
  assert.equal(found, '5s');
});

test('what the database said is known through the error in which a handler has wrapped it', async () => {
  let runs = 0;
  const each = async (tx: Tx, message: ReceivedMessage): Promise<void> => {
    await write(tx, [message]);
    if ((runs += 1) > 1) return;
    await tx.query("DO $$ BEGIN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END $$").catch((cause: unknown) => {
      throw new Error('charging failed', { cause });
    });
  };
  await publish('a1');
  await consume(1, { handler: { each }, retryForMs: 0 });
  assert.deepEqual([runs, await effects(), await heldTexts()], [2, ['a1'], []]);
});

test('what cannot be read is held as it came, once, and nothing stops for it', async () => {
  const { ce_id: _, ...withoutId } = record('a1').headers!;
  const unreadable = [
    { topic: name, key: 'k', value: Buffer.from([255, 0, 254]) },
    { ...record('a1'), headers: withoutId },
    { ...record('a1'), headers: { ...record('a1').headers, ce_id: '0190163d-8694-4234-8abc-0123456789ab' } },
    { topic: name, key: 'k', value: Buffer.from('{"msg_id":{}}'), headers: { '\u2028': '"' } },
  ];
  await publish('a0', ...unreadable, 'a2');
  const { passes } = await consume(6);
  assert.deepEqual(await effects(), ['a0', 'a2']);
  const rows = await held();
  assert.deepEqual(
    rows.map(({ kind, id }) => [kind, id]),
    unreadable.map(() => ['unreadable', undefined]),
  );
  assert.deepEqual(Buffer.from(rows[0]!.delivery.value), Buffer.from([255, 0, 254]));
  assert.match(rows[2]!.reason, /not a UUIDv7/);
  assert.deepEqual(passes[0]!.held, { unreadable: 4 });
  await pool.query('DELETE FROM twiceproof.inbox_position WHERE consumer = $1', [name]);
  const again = await consume(6);
  assert.deepEqual([again.passes[0]!.held, (await held()).length], [{}, 4]);
});

test('the same id with other content is held and counted; so is a time to come', async () => {
  const [id, future] = [uuidv7(), uuidv7(Date.now() + 400 * 3_600_000)];
  await publish(record('a1', id), record('a2', id), record('b1', id), record('c1', future), record('a2', id));
  const { passes } = await consume(5);
  assert.deepEqual(await effects(), ['a1']);
  assert.deepEqual(await heldTexts(), ['altered a2', 'altered b1', 'future c1']);
  assert.deepEqual([passes[0]!.held, passes[0]!.duplicates], [{ altered: 2, future: 1 }, 0]);
});

test('a late one is held once however often it comes, with one copy in the outbox, and none after it was settled', async () => {
  const outbox = createOutbox({ topics: ['dead-letters'] });
  const onHeld = async (tx: Tx, rows: readonly HeldRow[]): Promise<void> => {
    const copies = rows.map(({ seq, delivery: { value } }) => ({
      topic: 'dead-letters',
      aggregateId: `${name}-${seq}`,
      type: 'held',
      payload: value,
    }));
    await outbox.append(tx, copies);
  };
  const copies = async (): Promise<unknown> =>
    (await pool.query('SELECT FROM twiceproof.outbox WHERE aggregate_id LIKE $1', [`${name}-%`])).rowCount;
  const late = record('a1', uuidv7(Date.now() - 9 * 3_600_000));
  await publish(late, 'a2', late);
  const { passes } = await consume(3, { onHeld });
  await publish(late, 'a3');
  await consume(2, { onHeld });
  assert.deepEqual([await effects(), await heldTexts(), await copies()], [['a2', 'a3'], ['late a1'], 1]);
  assert.deepEqual(passes[0]!.held, { late: 1 });

  const running = start({ onHeld });
  await transaction(pool, async (tx) =>
    heldRows.ask(tx, [(await heldRows.list(tx, { consumer: name }))[0]!.seq], 'redrive'),
  );
  await until(async () => (await effects()).includes('a1'));
  await publish(late, 'a4');
  await until(() => received(running) === 2);
  await running.stop();
  assert.deepEqual([await effects(), await heldTexts(), await copies()], [['a2', 'a3', 'a1', 'a4'], [], 1]);
});

test('to run late ones is possible, and does so each time: this is how people are charged twice', async () => {
  const late = record('a1', uuidv7(Date.now() - 9 * 3_600_000));
  await publish(late, 'a2', late);
  const { passes } = await consume(3, { unsafeRunLate: true });
  assert.deepEqual([await effects(), passes[0]!.ranLate, passes[0]!.first], [['a1', 'a2', 'a1'], 2, 1]);
  await publish(late);
  await consume(1, { unsafeRunLate: true, handler: failing({ a1: () => new Error('no') }) });
  assert.deepEqual(await heldTexts(), ['parked a1'], 'it fails for good as any other');
});

test('a copy that cannot be written keeps its message from being held: both or neither', async () => {
  await publish('a1');
  let isBroken = true;
  const onHeld = async (tx: Tx): Promise<void> => {
    if (isBroken) await tx.query('SELECT 1 FROM not_there');
  };
  const running = start({ onHeld, handler: failing({ a1: () => new Error('no') }) });
  await until(() => running.troubles.length >= 3);
  assert.deepEqual([await heldTexts(), (await laneOf(`${name}-other`)).end], [[], 1n]);
  isBroken = false;
  await until(() => received(running) === 1);
  await running.stop();
  assert.deepEqual(await heldTexts(), ['parked a1']);
});

test('a handler that uses another connection is caught, and its message is held', async () => {
  const handler = {
    each: async (tx: Tx, message: ReceivedMessage) => {
      await write(tx, [message]);
      await pool.query('SELECT 1');
    },
  };
  await publish('a1');
  await consume(1, { handler });
  assert.deepEqual([await effects(), await heldTexts()], [[], ['parked a1']]);
  assert.match((await held())[0]!.reason, /TP_OTHER_CONNECTION/);
});

test('onHeld that uses another connection is caught, and nothing is held without it', async () => {
  let isBroken = true;
  const onHeld = async (): Promise<void> => {
    if (isBroken) await pool.query('SELECT 1');
  };
  await publish('a1');
  const running = start({ handler: failing({ a1: () => new Error('no') }), onHeld });
  await until(() => codesOf(running).includes('TP_OTHER_CONNECTION') || received(running) > 0);
  assert.deepEqual(await heldTexts(), []);
  isBroken = false;
  await until(() => received(running) === 1);
  await running.stop();
  assert.deepEqual(await heldTexts(), ['parked a1']);
});

for (const [what, statement] of [
  ['a failure that the handler swallows', 'SELECT 1 / 0'],
  ['a deferred constraint that speaks up at COMMIT', 'INSERT INTO checked VALUES (1), (1)'],
] as const) {
  test(`${what} is found, and holds the message that did it`, async () => {
    await pool.query('DROP TABLE IF EXISTS checked; CREATE TABLE checked (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)');
    const set = async (tx: Tx, messages: readonly ReceivedMessage[]): Promise<void> => {
      await write(tx, messages);
      if (messages.some((message) => textOf(message) === 'b1')) await tx.query(statement).catch(() => {});
    };
    await publish('a1', 'b1', 'c1');
    await consume(3, { handler: { set } });
    assert.deepEqual([await effects(), await heldTexts()], [['a1', 'c1'], ['parked b1']]);
    assert.match((await held())[0]!.reason, /TP_COMMIT_WAS_ROLLBACK|duplicate key/);
  });
}

/** Its first run waits, when it has written, until it is let go. */
function waiting() {
  const handler = {
    runs: 0,
    letGo: () => {},
    set: async (tx: Tx, messages: readonly ReceivedMessage[]): Promise<void> => {
      await write(tx, messages);
      handler.runs += 1;
      if (handler.runs === 1) await new Promise<void>((resolve) => (handler.letGo = resolve));
    },
  };
  return handler;
}

test('a lane that is taken away while its batch is under way: nothing of it is committed, and nothing settled', async () => {
  const handler = waiting();
  await publish('a1', 'b1');
  const running = start({ handler });
  await until(() => handler.runs === 1);
  // Another member comes and goes: all lanes are dealt out again, and ours comes back as another one.
  await (await transport.subscribe({ group: name, topics: [name] })).close();
  handler.letGo();
  await until(() => received(running) === 2);
  await running.stop();
  assert.deepEqual([handler.runs, await effects()], [2, ['a1', 'b1']]);
  assert.deepEqual([running.passes.length, running.passes[0]!.first], [1, 2]);
  assert.equal((await laneOf()).committed, 2n);
});

test('to stop is to finish the batch under way, settle it, and begin no other', async () => {
  const handler = waiting();
  await publish('a1', 'a2', 'a3');
  const running = start({ handler, batch: 2 });
  await until(() => handler.runs === 1);
  const stopped = running.stop();
  handler.letGo();
  await stopped;
  assert.deepEqual([await effects(), (await laneOf()).committed], [['a1', 'a2'], 2n]);
});

test('where it starts: at the position in the database, whatever the group is called', async () => {
  await publish('a1', 'a2', 'a3');
  await consume(3);
  await publish('a4');
  const { passes } = await consume(1, { group: `${name}-renamed` });
  assert.deepEqual([passes[0]!.received, passes[0]!.first], [1, 1]);
});

test('where it starts: a database that was restored behind its group gets all since then again', async () => {
  const id = uuidv7();
  await publish(record('a1', id), 'a2', 'a3');
  await consume(3);
  await pool.query("DELETE FROM effects WHERE name = $1 AND text <> 'a1'", [name]);
  await pool.query('UPDATE twiceproof.inbox_position SET next_offset = 1 WHERE consumer = $1', [name]);
  await pool.query('DELETE FROM twiceproof.inbox WHERE consumer = $1 AND msg_id <> $2', [name, id]);
  assert.equal((await laneOf()).committed, 3n);
  const { passes } = await consume(2);
  assert.deepEqual([passes[0]!.first, await effects()], [2, ['a1', 'a2', 'a3']]);
});

test('where it starts: a group that an operator sets back is replayed, and changes nothing', async () => {
  await publish('a1', 'a2', 'a3');
  await consume(3);
  const onAssigned = async () => [{ topic: name, partition: 0, offset: 0n }];
  const operator = await transport.subscribe({ group: name, topics: [name], onAssigned });
  await operator.settle((await operator.receive({ maxRecords: 1, waitMs: 1_000 }))!.deliveries);
  await operator.close();
  const { passes } = await consume(2);
  assert.deepEqual([passes[0]!.duplicates, await effects()], [2, ['a1', 'a2', 'a3']]);
});

test('where it starts: a topic of the same name that was created later is read from its beginning', async () => {
  await publish('a1', 'a2', 'a3');
  await consume(3);
  broker.createTopic(name, { partitions: 1 });
  await publish('a4', 'a5');
  await consume(2);
  assert.deepEqual(await effects(), ['a1', 'a2', 'a3', 'a4', 'a5']);
});

test('where it starts: a log that ends before what was processed is read from its beginning, with an alarm', async () => {
  await publish('a1', 'a2');
  await consume(2);
  await pool.query('UPDATE twiceproof.inbox_position SET next_offset = 50 WHERE consumer = $1', [name]);
  const { passes, troubles } = await consume(2);
  assert.deepEqual([passes[0]!.duplicates, (troubles[0] as TwiceproofError).code], [2, 'TP_POSITION_LOST']);
});

test('a database that is restored while it runs: what it has lost comes again, and an alarm says so', async () => {
  const running = start();
  await publish('re1');
  await until(async () => (await effects()).length === 1);
  await publish('re2');
  await publish('re3');
  await until(() => received(running) === 3);
  // As a backup of after the first one would have it.
  await transaction(pool, async (tx) => {
    await tx.query(`DELETE FROM effects WHERE name = $1 AND text <> 're1'`, [name]);
    await tx.query(
      `DELETE FROM twiceproof.inbox WHERE consumer = $1 AND processed_at > (
         SELECT min(processed_at) FROM twiceproof.inbox WHERE consumer = $1)`,
      [name],
    );
    await tx.query('UPDATE twiceproof.inbox_position SET next_offset = 1 WHERE consumer = $1', [name]);
  });
  await publish('re4');
  await until(async () => (await effects()).length === 4);
  await running.stop();
  assert.deepEqual(await effects(), ['re1', 're2', 're3', 're4']);
  assert.deepEqual(codesOf(running), ['TP_POSITION_LOST']);
});

/** A member that has got its batch, and then stands still: it does not hear that its lane is another's. */
function zombieTransport() {
  const own = broker.transport();
  const gate = Promise.withResolvers<void>();
  const state = { hasBatch: false };
  const subscribe: Transport['subscribe'] = async (options) => {
    const subscription = await own.subscribe(options);
    const receive: Subscription['receive'] = async (wanted) => {
      if (state.hasBatch) await delay(5);
      const batch = state.hasBatch ? undefined : await subscription.receive(wanted);
      if (!batch) return undefined;
      state.hasBatch = true;
      await gate.promise;
      return { ...batch, signal: new AbortController().signal };
    };
    return { ...subscription, receive };
  };
  return { state, crash: () => own.crash(), letGo: gate.resolve, transport: { ...own, subscribe } };
}

test('a member that was late sets the position back: what is between comes again, and the alarm says what it may be', async () => {
  const { state, crash, letGo, transport: itsTransport } = zombieTransport();
  const zombie = start({ transport: itsTransport });
  await publish('a1', 'a2');
  await until(() => state.hasBatch);
  crash();
  const owner = start();
  await until(() => received(owner) === 2);
  await publish('a3');
  await until(() => received(owner) === 3);
  letGo();
  await until(() => received(zombie) === 2);
  await publish('a4');
  await until(async () => (await effects()).includes('a4'));
  await owner.stop();
  await zombie.stop();
  assert.deepEqual(await effects(), ['a1', 'a2', 'a3', 'a4']);
  const said = String(owner.troubles[0]);
  assert.match(
    said,
    /TP_POSITION_LOST: .*the database has position 2, and not 3: it was restored, or a member .* late/,
  );
});

test('a handler that never returns is left at its deadline; its message is held, and the others go on', async () => {
  const { promise: never } = Promise.withResolvers<void>();
  const each = async (tx: Tx, message: ReceivedMessage): Promise<void> => {
    if (textOf(message) === 'b1') await never;
    await write(tx, [message]);
  };
  await publish('a1', 'b1', 'c1');
  const running = await consume(3, { handler: { each }, handlerTimeoutMs: 100, retryForMs: 0 });
  assert.deepEqual([await effects(), await heldTexts()], [['a1', 'c1'], ['parked b1']]);
  assert.match((await held())[0]!.reason, /TP_HANDLER_SLOW/);
  assert.deepEqual(codesOf(running), ['TP_HANDLER']);
});

test('what a handler still sends when its time is over, because a statement of it took so long, has no effect', async () => {
  let isSlow = true;
  const each = async (tx: Tx, message: ReceivedMessage): Promise<void> => {
    if (textOf(message) === 'a1' && isSlow) {
      isSlow = false;
      // In the midst of the second its time is over, and it goes on when that is answered.
      for (let n = 0; n < 2; n += 1) await tx.query('SELECT pg_sleep(0.15)');
    }
    await write(tx, [message]);
  };
  await publish('a1', 'b1', 'c1');
  await consume(3, { handler: { each }, handlerTimeoutMs: 200 });
  assert.deepEqual([await effects(), await heldTexts()], [['a1', 'b1', 'c1'], []]);
});

test('a handler that returns when its time is over is not called for the rest of its batch', async () => {
  const { promise: gate, resolve: letGo } = Promise.withResolvers<void>();
  const calls: string[] = [];
  const each = async (tx: Tx, message: ReceivedMessage): Promise<void> => {
    calls.push(textOf(message));
    if (calls.length === 1) return gate;
    await write(tx, [message]);
  };
  await publish('a1', 'b1', 'c1', 'd1');
  await consume(4, { handler: { each }, handlerTimeoutMs: 100 });
  const called = calls.length;
  letGo();
  await delay(20);
  assert.deepEqual([calls.slice(called), await effects()], [[], ['a1', 'b1', 'c1', 'd1']]);
});

test('what a handler does to the bytes of its message is not there when it is tried again', async () => {
  let tried = 0;
  const each = async (tx: Tx, message: ReceivedMessage): Promise<void> => {
    if ((tried += 1) > 1) return write(tx, [message]);
    message.payload.fill(0x78);
    throw Object.assign(new Error('once more'), { retryable: true });
  };
  const sent = record('a1');
  await publish(sent);
  await consume(1, { handler: { each } });
  await publish(sent);
  await consume(1, { handler: { each } });
  assert.deepEqual([tried, await effects(), await heldTexts()], [2, ['a1'], []]);
});

test('a handler that waits for the lock of another is ended at its deadline', async () => {
  await pool.query('CREATE TABLE stock (n int); INSERT INTO stock VALUES (0)');
  const other = await pool.connect();
  await other.query('BEGIN; UPDATE stock SET n = 1');
  try {
    const each = async (tx: Tx, message: ReceivedMessage): Promise<void> => {
      if (textOf(message) === 'b1') await tx.query('UPDATE stock SET n = n + 1');
      await write(tx, [message]);
    };
    await publish('a1', 'b1', 'c1');
    await consume(3, { handler: { each }, handlerTimeoutMs: 200, retryForMs: 0 });
    assert.deepEqual([await effects(), await heldTexts()], [['a1', 'c1'], ['parked b1']]);
  } finally {
    await other.query('ROLLBACK');
    other.release();
  }
});

test('one that was held because its time had not come is parked when it comes again and fails', async () => {
  const sent = record('a1');
  const each = async (): Promise<void> => {
    throw new Error('not that one');
  };
  await publish(sent);
  await consume(1, { handler: { each } });
  // As if it had come before its time: then it has no inbox row, and its key does not wait.
  await pool.query(`UPDATE twiceproof.held SET kind = 'future', blocks_key = false WHERE consumer = $1`, [name]);
  await pool.query('DELETE FROM twiceproof.inbox WHERE consumer = $1', [name]);
  await publish(sent, 'a2');
  await consume(2, { handler: { each } });
  assert.deepEqual(await heldTexts(), ['parked a1', 'parked a2']);
});

test('one of a time to come that was dropped is run when it comes in its time, also if it fails at first', async () => {
  const future = record('a1', uuidv7(Date.now() + 3_600_000));
  const { rows } = await pool.query<{ ceiling: string }>('SELECT ceiling FROM twiceproof.inbox_bounds');
  await pool.query('UPDATE twiceproof.inbox_bounds SET ceiling = $1', [uuidv7(Date.now() + 60_000)]);
  try {
    await publish(future);
    await consume(1);
  } finally {
    // Its time has come.
    await pool.query('UPDATE twiceproof.inbox_bounds SET ceiling = $1', [rows[0]!.ceiling]);
  }
  assert.deepEqual(await heldTexts(), ['future a1']);
  const [early] = await held();
  await transaction(pool, (tx) => heldRows.drop(tx, [early!.seq]));
  let isBroken = true;
  const each = async (tx: Tx, message: ReceivedMessage): Promise<void> => {
    if (isBroken) throw new Error('not yet');
    await write(tx, [message]);
  };
  const running = start({ handler: { each } });
  await publish(future);
  await until(async () => (await heldTexts())[0] === 'parked a1');
  isBroken = false;
  const seqs = (await held()).map(({ seq }) => seq);
  await transaction(pool, (tx) => heldRows.ask(tx, seqs, 'release'));
  await until(async () => (await held()).length === 0);
  await running.stop();
  assert.deepEqual(await effects(), ['a1']);
});

test('a service of the handler that cannot be reached is tried for some time, and then its message is held', async () => {
  let tried = 0;
  const each = async (tx: Tx, message: ReceivedMessage): Promise<void> => {
    if (textOf(message) === 'a1') {
      tried += 1;
      throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
    }
    await write(tx, [message]);
  };
  await publish('a1', 'b1');
  await consume(2, { handler: { each }, retryForMs: 100, batch: 1 });
  assert.deepEqual([await effects(), await heldTexts()], [['b1'], ['parked a1']]);
  assert.ok(tried > 1, `${tried} times`);
});

test('what a trigger refuses at COMMIT, in whatever words, is the fault of the message', async () => {
  await pool.query(`CREATE TABLE guarded (text text);
    CREATE OR REPLACE FUNCTION refuse_b() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN IF NEW.text = 'b1' THEN RAISE EXCEPTION 'not that one'; END IF; RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER late_check AFTER INSERT ON guarded DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION refuse_b()`);
  const set = async (tx: Tx, messages: readonly ReceivedMessage[]): Promise<void> => {
    await tx.query('INSERT INTO guarded SELECT unnest($1::text[])', [messages.map(textOf)]);
    await write(tx, messages);
  };
  await publish('a1', 'b1', 'c1');
  await consume(3, { handler: { set } });
  assert.deepEqual([await effects(), await heldTexts()], [['a1', 'c1'], ['parked b1']]);
});

test('a lane that cannot go on keeps no other lane from going on', async () => {
  broker.createTopic(`${name}-wide`, { partitions: 3 });
  let isMended = false;
  const onHeld = async (): Promise<void> => {
    if (!isMended) throw new Error('no copy can be written');
  };
  const running = start({ topics: [`${name}-wide`], workers: 1, onHeld });
  const keys = Array.from({ length: 12 }, (_, n) => `k${'abcdefghijkl'[n]!}`);
  const [bad, ...good] = keys.map((key) => ({ ...record(`${key}1`), topic: `${name}-wide` }));
  const { ce_id: _, ...withoutId } = bad!.headers!;
  await publish({ ...bad!, headers: withoutId });
  await until(() => running.troubles.length > 0);
  await publish(...good);
  // Those of other lanes; there are three.
  await until(async () => (await effects()).length >= 4);
  isMended = true;
  await until(async () => (await effects()).length === good.length);
  await running.stop();
  assert.equal((await held()).length, 1);
});

test('without a partition for them messages of now wait, and are neither held nor overtaken', async () => {
  const { rows } = await pool.query<{ ceiling: string }>('SELECT ceiling FROM twiceproof.inbox_bounds');
  await pool.query('UPDATE twiceproof.inbox_bounds SET ceiling = floor');
  const running = start();
  try {
    await publish('a1', 'a2');
    await until(() => running.troubles.length > 0);
  } finally {
    await pool.query('UPDATE twiceproof.inbox_bounds SET ceiling = $1', [rows[0]!.ceiling]);
  }
  await until(async () => (await effects()).length === 2);
  await running.stop();
  assert.deepEqual([await effects(), await held()], [['a1', 'a2'], []]);
  assert.deepEqual(new Set(codesOf(running)), new Set(['TP_INBOX_BEHIND']));
});

test('an id that is ahead by more than clocks are wrong is held, and stops nobody, also where partitions are made less far ahead', async () => {
  const { rows } = await pool.query<{ ceiling: string }>('SELECT ceiling FROM twiceproof.inbox_bounds');
  await pool.query('UPDATE twiceproof.inbox_bounds SET ceiling = $1', [uuidv7(Date.now() + 60_000)]);
  try {
    await publish('a1', record('b1', uuidv7(Date.now() + 3_600_000)), 'a2');
    await consume(3);
  } finally {
    await pool.query('UPDATE twiceproof.inbox_bounds SET ceiling = $1', [rows[0]!.ceiling]);
  }
  assert.deepEqual([await effects(), await heldTexts()], [['a1', 'a2'], ['future b1']]);
});

test('onHeld that never returns is left at its deadline and tried again; nothing is held without it', async () => {
  const never = Promise.withResolvers<void>();
  let asked = 0;
  const onHeld = async (): Promise<void> => {
    if ((asked += 1) === 1) await never.promise;
  };
  await publish('a1', 'b1');
  const handler = failing({ a1: () => new Error('no') });
  const running = await consume(2, { handler, onHeld, handlerTimeoutMs: 100 });
  assert.deepEqual([asked, await effects(), await heldTexts()], [2, ['b1'], ['parked a1']]);
  assert.ok(codesOf(running).includes('TP_HANDLER_SLOW'), String(codesOf(running)));
});

test('onHeld that fails is no verdict on its message, whose handler has not run: it waits, and is held as what it is', async () => {
  await publish('a1');
  const handler = failing({ a1: () => new Error('no'), a2: () => new Error('its handler ran') });
  await consume(1, { handler });
  let asked = 0;
  const onHeld = async (): Promise<void> => {
    if ((asked += 1) <= 3) throw new Error('no copy today');
  };
  await publish('a2', 'b1');
  const running = await consume(2, { handler, onHeld, retryForMs: 0, onFailure: 'dead-letter' });
  assert.deepEqual([await effects(), await heldTexts()], [['b1'], ['parked a1', 'parked a2']]);
  assert.equal((await held())[1]!.reason, 'behind one of its key');
  assert.equal(codesOf(running).includes('TP_HANDLER'), false);
});

test('several members share the lanes, some come and go, and each message has one effect', async () => {
  const topic = `${name}-wide`;
  broker.createTopic(topic, { partitions: 4 });
  const texts = Array.from({ length: 400 }, (_, n) => `${'abcdefgh'[n % 8]}${n}`);
  const records = texts.map((text) => ({ ...record(text), topic }));
  const member = (): Running => start({ topics: [topic], batch: 7 });
  const members = [member(), member()];
  const total = (): number =>
    members.reduce((sum, { passes }) => sum + passes.reduce((n, pass) => n + pass.first, 0), 0);
  for (const part of [0, 1, 2, 3]) {
    await publish(...records.slice(part * 100, (part + 1) * 100), ...records.slice(0, part * 30));
    await until(() => total() > part * 80);
    members.push(member());
    await members[part]!.stop();
  }
  await until(async () => (await effects()).length >= 400);
  await Promise.all(members.map(async ({ stop }) => stop()));
  const found = await effects();
  assert.deepEqual(found.toSorted(), texts.toSorted());
  const ofA = found.filter((text) => text.startsWith('a')).map((text) => Number(text.slice(1)));
  assert.deepEqual(
    ofA,
    ofA.toSorted((a, b) => a - b),
  );
});

test('a topic that is not there yet is waited for; a subscription that somebody closes ends it, and says so', async () => {
  const other = broker.transport();
  const running = createConsumer({ pool, transport: other, name, topics: [`${name}-later`], handler: { set: write } });
  const ended = running.run(new AbortController().signal);
  broker.createTopic(`${name}-later`, { partitions: 1 });
  await publisher.publish([{ ...record('a1'), topic: `${name}-later` }]);
  await until(async () => (await effects()).length === 1);
  await other.close();
  await assert.rejects(ended, { code: 'TP_CLOSED' });
});

test('when its subscription is closed it ends after what is under way, also what waits to be tried again', async () => {
  const other = broker.transport();
  broker.createTopic(`${name}-two`, { partitions: 1 });
  const slow = waiting();
  let isTold = false;
  let hasEnded = false;
  const consumer = createConsumer({
    pool,
    transport: other,
    name,
    topics: [name, `${name}-two`],
    batch: 1,
    handler: {
      set: async (tx, messages) => {
        // A lane that has to wait has no slot meanwhile.
        if (messages.some((message) => textOf(message) === 'b1')) await noRoom(tx);
        await slow.set(tx, messages);
      },
    },
    onTrouble: () => (isTold = true),
  });
  const ended = consumer.run(new AbortController().signal).finally(() => (hasEnded = true));
  await publish({ ...record('b1'), topic: `${name}-two` });
  await until(() => isTold);
  await publish('a1');
  await until(() => slow.runs === 1);
  const rejected = assert.rejects(ended, { code: 'TP_CLOSED' });
  await other.close();
  await delay(100);
  const hasEndedEarly = hasEnded;
  slow.letGo();
  await rejected;
  assert.equal(hasEndedEarly, false, 'it has ended while a batch was under way');
});

/** What the server says when it has no room for us: that is no fault of a message. */
async function noRoom(tx: Tx): Promise<void> {
  await tx.query("DO $$ BEGIN RAISE EXCEPTION 'too many' USING ERRCODE = '53300'; END $$");
}

test('an observer, or an alarm, that throws changes nothing', async () => {
  await publish('a1', 'b1');
  let isTold = false;
  const running = start({
    handler: failing({ b1: () => new Error('no') }),
    observe: () => {
      isTold = true;
      throw new Error('of the observer');
    },
    onTrouble: () => {
      throw new Error('of the alarm');
    },
  });
  await until(() => isTold);
  await running.stop();
  assert.deepEqual([await effects(), await heldTexts()], [['a1'], ['parked b1']]);
});

test('options that cannot be are refused', () => {
  const slow = [
    { idleTimeoutMs: -1 },
    { handlerTimeoutMs: 0 },
    { handlerTimeoutMs: 30_000 },
    { idleTimeoutMs: 20_000 },
    // A timer of Node's, or a setting of the server's, that is longer than it can be.
    { idleTimeoutMs: 2 ** 31 },
    { wishesEveryMs: 2 ** 31 },
  ];
  const counts = [{ batch: 0 }, { batch: 10.5 }, { workers: 0 }, { workers: 1.5 }];
  for (const wrong of [{ name: '' }, { topics: [] }, ...counts, { retryForMs: -1 }, { wishesEveryMs: 0 }, ...slow]) {
    assert.throws(() => start(wrong), { code: 'TP_OPTION' });
  }
  // As somebody without types may write them.
  for (const handler of [undefined, {}, write, { Each: write }, { each: 'write' }, { each: write, set: undefined }]) {
    const wrong = { handler } as unknown as Partial<ConsumerOptions>;
    assert.throws(() => start(wrong), { code: 'TP_OPTION', message: /handler has a function each, or a function set/ });
  }
  const parked = { onFailure: 'parked' } as unknown as Partial<ConsumerOptions>;
  assert.throws(() => start(parked), {
    code: 'TP_OPTION',
    message: /onFailure is 'park' or 'dead-letter', not 'parked'/,
  });
  assert.throws(() => start({ schema: 'a"b' }), { code: 'TP_SCHEMA_NAME' });
});

test('a key that somebody else parks while we wait for his message is not overtaken', async () => {
  const [first, second] = [record('a1'), record('a2')];
  const id = first.headers!['ce_id']!;
  await publish(first, second);
  const delivery = { lane: { topic: name, partition: 0 }, key: undefined, value: Buffer.from('a1'), headers: [] };
  const parked = { kind: 'parked', delivery, topicId: 'x', aggregateId: 'a', id, content: 1n, reason: 'no' } as const;
  const waits = "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'";
  const other = await pool.connect();
  let running: ReturnType<typeof start>;
  try {
    await other.query('BEGIN');
    await createInbox().accept(other, { consumer: name, id, content: contentHash(messageOf('a1')) });
    await heldRows.hold(other, name, [parked]);
    running = start();
    await until(async () => (await pool.query(waits)).rowCount === 1);
    await other.query('COMMIT');
  } finally {
    other.release(true);
  }
  await until(() => received(running) === 2);
  await running.stop();
  assert.deepEqual([await effects(), await heldTexts()], [[], ['parked a1', 'parked a2']]);
});
