import assert from 'node:assert/strict';
import { execFile, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { createConsumer } from '../consumer/consumer.ts';
import { createInboxKeeper } from '../consumer/inbox-keeper.ts';
import { createHeld, type HeldRow } from '../inbox/held.ts';
import { migrate } from '../migrations/migrate.ts';
import { transaction } from '../transaction.ts';
import { createMemoryBroker } from '../transports/memory.ts';
import type { Tx } from '../tx.ts';
import { uuidv7 } from '../uuid.ts';
import { toRecord, type ReceivedMessage } from '../wire.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());
await pool.query('CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, text text)');
const held = createHeld();

interface Result {
  code: number;
  out: string;
  err: string;
}

/** Not synchronously: what it asks for is done by a consumer in this process. */
function start(...args: string[]): { child: ChildProcess; result: Promise<Result> } {
  const call = [join(import.meta.dirname, 'main.ts'), 'held', ...args];
  const { promise, resolve } = Promise.withResolvers<Result>();
  const child = execFile(process.execPath, call, { env: { ...process.env, DATABASE_URL: url } }, (error, out, err) => {
    resolve({ code: typeof error?.code === 'number' ? error.code : 0, out, err });
  });
  return { child, result: promise };
}

const twiceproof = async (...args: string[]): Promise<Result> => start(...args).result;

async function asJson(...args: string[]): Promise<{ code: number; answer: Record<string, unknown> }> {
  const { code, out, err } = await twiceproof(...args, '--json');
  assert.ok(out, err);
  return { code, answer: JSON.parse(out) as Record<string, unknown> };
}

/** What its handler cannot do. */
const poison = new Set<string>();
/** How long it takes for one of them. */
let slowMs = 0;
const textOf = ({ payload }: ReceivedMessage): string => Buffer.from(payload).toString();
const handler = {
  each: async (tx: Tx, message: ReceivedMessage): Promise<void> => {
    const text = textOf(message);
    if (slowMs > 0) await delay(slowMs);
    if (poison.has(text)) throw new Error(`cannot ${text}`);
    await tx.query('INSERT INTO effects (text) VALUES ($1)', [text]);
  },
};

async function effects(): Promise<string[]> {
  return (await pool.query<{ text: string }>('SELECT text FROM effects ORDER BY n')).rows.map(({ text }) => text);
}

let broker = createMemoryBroker();

beforeEach(async () => {
  poison.clear();
  slowMs = 0;
  await pool.query('TRUNCATE effects');
  broker = createMemoryBroker();
  broker.createTopic('t', { partitions: 1 });
  await pool.query('DROP SCHEMA IF EXISTS twiceproof CASCADE');
  await migrate(pool);
  await createInboxKeeper({ pool, ttlMs: 3_600_000, partitionMs: 3_600_000 }).runOnce();
});

/** `a1` is the first of aggregate `a`. */
async function publish(...texts: string[]): Promise<void> {
  await publishWith(texts.map((text) => ({ text, id: uuidv7() })));
}

async function publishWith(messages: { text: string; id: string }[]): Promise<void> {
  const records = messages.map(({ text, id }) => {
    const message = { topic: 't', aggregateId: text.replace(/\d+$/, ''), type: 'said', payload: Buffer.from(text) };
    return toRecord({ ...message, id, createdAt: new Date() }, '/test');
  });
  await broker.transport().publisher().publish(records);
}

/** Runs a consumer until so many messages have come, and for as long as `work` lasts. */
async function consuming<T>(count: number, work: () => Promise<T>): Promise<T> {
  const stopping = new AbortController();
  let received = 0;
  let allCame = (): void => {};
  const came = new Promise<void>((resolve) => (allCame = resolve));
  const consumer = createConsumer({
    pool,
    transport: broker.transport(),
    name: 'c',
    topics: ['t'],
    handler,
    wishesEveryMs: 20,
    observe: (pass) => {
      received += pass.received;
      if (received >= count) allCame();
    },
  });
  const running = consumer.run(stopping.signal);
  try {
    if (count > 0) await came;
    return await work();
  } finally {
    stopping.abort();
    await running;
  }
}

const rows = async (): Promise<HeldRow[]> => transaction(pool, (tx) => held.list(tx));
const nothing = async (): Promise<void> => {};

/** Parked: a1, with a2 and a3 behind it, and b1. */
async function parkSome(): Promise<string[]> {
  poison.add('a1').add('b1');
  await publish('a1', 'b1', 'a2', 'c1', 'a3');
  await consuming(5, nothing);
  return (await rows()).map(({ seq }) => String(seq));
}

test('list and show: what is held, by consumer, kind and key; its bytes only on demand', async () => {
  assert.equal((await twiceproof('list')).out, 'Nothing is held.\n');
  const seqs = await parkSome();
  const { out } = await twiceproof('list');
  assert.match(out, new RegExp(`^${seqs[0]} c parked: [0-9a-f-]{36} of "a", t/0 at 0, since .*: Error: cannot a1\n`));
  assert.match(
    out,
    /\nIn all: 4\n {2}2 c parked of t, since .*: behind one of its key\n {2}1 c .*cannot a1\n {2}1 c .*cannot b1\n$/,
  );
  assert.equal(out.trimEnd().split('\n').length, 8);
  const seqsOf = async (...args: string[]): Promise<string[]> =>
    ((await asJson('list', ...args)).answer['held'] as { seq: string }[]).map(({ seq }) => seq);
  assert.deepEqual(await seqsOf('--key', 'a'), [seqs[0], seqs[2], seqs[3]]);
  assert.deepEqual(await seqsOf('--consumer', 'other'), []);
  assert.deepEqual(await seqsOf('--kind', 'dead'), []);
  assert.deepEqual(await seqsOf('--topic', 'other'), []);
  assert.deepEqual(await seqsOf('--older-than-hours', '1'), []);
  assert.deepEqual(await seqsOf('--older-than-hours', '0', '--topic', 't', '--kind', 'parked'), seqs);
  const { answer: page } = await asJson('list', '--limit', '3');
  assert.deepEqual([(page['held'] as object[]).length, page['next'], page['count']], [3, seqs[2], 4]);
  const { answer: last } = await asJson('list', '--limit', '3', '--after', seqs[2]!);
  assert.deepEqual(
    [(last['held'] as { seq: string }[])[0]!.seq, last['next'], last['count']],
    [seqs[3], null, undefined],
  );
  assert.doesNotMatch(JSON.stringify(page), /payload|headers|record/);
  const shown = (await asJson('show', seqs[0]!)).answer['held'] as Record<string, unknown>;
  assert.ok((shown['headers'] as [string, string][]).some(([name, value]) => name === 'ce_type' && value === 'said'));
  assert.ok(!('payloadBase64' in shown));
  const full = (await asJson('show', seqs[0]!, '--payload')).answer['held'] as Record<string, unknown>;
  assert.equal(Buffer.from(String(full['payloadBase64']), 'base64').toString(), 'a1');
  assert.deepEqual(await asJson('show', '999'), { code: 1, answer: { outcome: 'nothing there', missing: ['999'] } });
});

test('redrive: the running consumer does it, and the command tells what came of it', async () => {
  const seqs = await parkSome();
  await pool.query('TRUNCATE effects');
  poison.delete('b1');
  await consuming(0, async () => {
    const { code, answer } = await asJson('redrive', seqs[1]!, seqs[0]!, '999');
    const { outcome, settled, kept, missing } = answer;
    assert.deepEqual([code, outcome, settled, kept, missing], [1, 'kept', 1, 1, ['999']]);
    assert.match(JSON.stringify(answer['firstKept']), /cannot a1/);
    poison.clear();
    const { code: done, out } = await twiceproof('redrive', seqs[0]!);
    assert.deepEqual([done, out], [0, 'Settled: 1\n']);
    assert.equal((await twiceproof('redrive', seqs[0]!)).out, `Not held: ${seqs[0]}\n`);
  });
  assert.deepEqual(await effects(), ['b1', 'a1']);
});

test('release: a key in its order', async () => {
  await parkSome();
  await pool.query('TRUNCATE effects');
  poison.delete('a1');
  await consuming(0, async () => {
    const { code, out } = await twiceproof('release', '--consumer', 'c', '--key', 'a');
    assert.deepEqual([code, out], [0, 'Settled: 3\n']);
    assert.equal((await twiceproof('release', '--consumer', 'c', '--key', 'a')).code, 1);
  });
  assert.deepEqual([await effects(), (await rows()).length], [['a1', 'a2', 'a3'], 1]);
});

test('when no consumer runs it says so, and the wish stands until one does', async () => {
  const seqs = await parkSome();
  await pool.query('TRUNCATE effects');
  poison.clear();
  const { code, out } = await twiceproof('redrive', seqs[1]!, '--wait-ms', '100');
  assert.equal(code, 1);
  assert.match(out, /1 were not taken up within 100 ms: does c run/);
  assert.match((await twiceproof('list')).out, /redrive is asked for/);
  await publish('d1');
  await consuming(1, async () => {
    while ((await rows()).length > 3);
  });
  assert.deepEqual((await effects()).toSorted(), ['b1', 'd1']);
});

test('as long as the consumer goes on with what fails again, the command waits', async () => {
  const late = Array.from({ length: 40 }, (_, n) => lateOf(n));
  late.forEach(({ text }) => poison.add(text));
  await publishWith(late);
  await consuming(late.length, async () => {
    slowMs = 25;
    // In all it takes longer than that, and each of them less.
    const { answer } = await asJson('redrive', '--consumer', 'c', '--wait-ms', '700');
    assert.deepEqual([answer['outcome'], answer['kept'], answer['waiting']], ['kept', 40, 0]);
  });
});

test('what may have run since is kept as late, and the command says so, also when it was asked for by its kind', async () => {
  const message = { topic: 't', aggregateId: 'z', type: 'said', payload: Buffer.from('z1') };
  const sent = toRecord({ ...message, id: lateOf(1).id, createdAt: new Date() }, '/test');
  const delivery = {
    lane: { topic: 't', partition: 0 },
    key: Buffer.from(sent.key),
    value: sent.value,
    headers: Object.entries(sent.headers ?? {}).map(([name, content]) => [name, Buffer.from(content)] as const),
  };
  // An update can read it now.
  const unreadable = { kind: 'unreadable', delivery, topicId: 'x', content: 1n, reason: 'at first' } as const;
  await transaction(pool, (tx) => held.hold(tx, 'c', [unreadable]));
  await consuming(0, async () => {
    const { code, answer } = await asJson('redrive', '--consumer', 'c', '--kind', 'unreadable');
    assert.deepEqual([code, answer['outcome'], answer['settled'], answer['kept']], [1, 'kept', 0, 1]);
    assert.match(JSON.stringify(answer['firstKept']), /"kind":"late".*forgotten whether it has run/);
    assert.deepEqual(await effects(), []);
    assert.equal((await asJson('redrive', '--consumer', 'c', '--kind', 'late')).answer['settled'], 1);
  });
  assert.deepEqual(await effects(), ['z1']);
});

test('drop: only with --yes; and a late one does not come back', async () => {
  const late = { text: 'z1', id: uuidv7(Date.now() - 9 * 3_600_000) };
  await publishWith([late]);
  await consuming(1, nothing);
  const [{ seq }] = (await rows()) as [HeldRow];
  const asked = await twiceproof('drop', String(seq));
  assert.equal(asked.code, 2);
  assert.match(asked.out, /late: .*\nIn all: 1\n.*\nTo give up for good what is there now: --yes/);
  assert.equal((await rows()).length, 1);
  const { code, answer } = await asJson('drop', String(seq), '--yes');
  assert.deepEqual([code, answer['outcome'], answer['missing']], [0, 'dropped', []]);
  assert.equal((await asJson('drop', String(seq), '--yes')).code, 1);
  await publishWith([late]);
  await consuming(1, nothing);
  assert.deepEqual([await rows(), await effects()], [[], []]);
});

/** So many that several batches are needed. */
const many = 2_300;
const lateOf = (n: number) => ({ text: `z${n}`, id: uuidv7(Date.now() - 9 * 3_600_000) });

test('many at once, by what they have in common: in batches, each once, and what is not meant stays', async () => {
  await parkSome();
  await pool.query('TRUNCATE effects');
  poison.add('z7');
  await publishWith(Array.from({ length: many }, (_, n) => lateOf(n)));
  await consuming(many, async () => {
    const { code, answer } = await asJson('redrive', '--consumer', 'c', '--kind', 'late', '--limit', '2200');
    assert.deepEqual([code, answer['settled'], answer['kept'], answer['waiting']], [1, 2_199, 1, 0]);
    assert.match(JSON.stringify(answer['firstKept']), /cannot z7/);
    poison.clear();
    const rest = await asJson('redrive', '--consumer', 'c', '--kind', 'late', '--topic', 't');
    assert.deepEqual([rest.code, rest.answer['settled'], rest.answer['kept']], [0, 101, 0]);
    assert.equal((await asJson('redrive', '--consumer', 'c', '--kind', 'late')).answer['outcome'], 'nothing there');
    const ran = await effects();
    assert.deepEqual([ran.length, new Set(ran).size], [many, many]);
    const released = await asJson('release', '--consumer', 'c');
    assert.deepEqual([released.code, released.answer['settled']], [0, 4]);
  });
  const behind = (await effects()).slice(many);
  assert.deepEqual(
    behind.filter((text) => text.startsWith('a')),
    ['a1', 'a2', 'a3'],
  );
  assert.deepEqual([behind.length, await rows()], [4, []]);
});

test('many are dropped only with --yes; a command that is killed has dropped whole batches, and the next one does the rest', async () => {
  await parkSome();
  const late = Array.from({ length: many }, (_, n) => lateOf(n));
  await publishWith(late);
  await consuming(many, nothing);
  const what = ['drop', '--consumer', 'c', '--kind', 'late'];
  const drop = (...more: string[]) => start(...what, ...more);
  const counted = await asJson(...what);
  assert.deepEqual([counted.code, counted.answer['count'], await left()], [2, many, many]);

  const victim = drop('--yes');
  await whileItWaitsAt(1_999, async () => {
    victim.child.kill('SIGKILL');
    await victim.result;
  });
  while ((await pool.query("SELECT FROM pg_stat_activity WHERE application_name = 'twiceproof-cli'")).rowCount);
  assert.equal(await left(), many - 1_000);

  const successor = drop('--yes', '--json');
  await whileItWaitsAt(0, async () => {
    // One goes and another comes, so that there are as many as before.
    await transaction(pool, async (tx) => held.drop(tx, [(await held.tally(tx, { kind: 'late' })).last]));
    await publishWith([lateOf(many)]);
    await consuming(1, nothing);
  });
  const { code, out } = await successor.result;
  const answer = JSON.parse(out) as Record<string, unknown>;
  assert.deepEqual([code, answer['outcome'], answer['count']], [0, 'dropped', many - 1_001]);
  assert.equal(await left(), 1, 'what came meanwhile was not meant');
  await publishWith(late);
  await consuming(many, nothing);
  assert.deepEqual([await left(), (await rows()).length, await effects()], [1, 5, ['c1']]);
});

/** Somebody else has the late message at this place just now, so that a command has to wait there. */
async function whileItWaitsAt(place: number, work: () => Promise<void>): Promise<void> {
  const client = await pool.connect();
  await client.query('BEGIN');
  const seq = `SELECT seq FROM twiceproof.held WHERE kind = 'late' ORDER BY seq OFFSET ${place} LIMIT 1`;
  await client.query(`SELECT FROM twiceproof.held WHERE seq = (${seq}) FOR UPDATE`);
  const { rows: own } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  const waiting = 'SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))';
  while ((await pool.query(waiting, [own[0]!.pid])).rowCount === 0);
  await work();
  await client.query('ROLLBACK');
  client.release();
}

async function left(): Promise<number> {
  return (await transaction(pool, (tx) => held.tally(tx, { kind: 'late' }))).count;
}

test('wrong calls say what is wrong', async () => {
  const calls: [args: string[], said: RegExp][] = [
    [[], /a command is needed: list, show, redrive, release, drop/],
    [['liste'], /there is no command 'liste': list/],
    [['show'], /SEQ is needed/],
    [['show', '1', '2'], /unexpected '2'/],
    [['show', 'x'], /SEQ is a whole number, not 'x'/],
    [['redrive'], /SEQ... is needed, or --consumer/],
    [['drop', '--kind', 'late', '--yes'], /SEQ... is needed, or --consumer/],
    [['drop', '1', '--kind', 'late', '--consumer', 'c'], /either SEQ... or --consumer, --kind/],
    [['redrive', '--consumer', 'c', '--older-than-hours', 'x'], /--older-than-hours is a number/],
    [['list', '--after', 'x'], /--after is a whole number/],
    [['redrive', '1', '--wait-ms', 'x'], /--wait-ms is a whole number/],
    [['drop', '0', '--yes'], /SEQ is from 1/],
    [['list', '--kind', 'lost'], /--kind is one of parked, dead/],
    [['release', '--key', 'a'], /--consumer is needed/],
    [['release', '--consumer', 'c', '--kind', 'late'], /takes no --kind/],
  ];
  await Promise.all(
    calls.map(async ([args, said]) => {
      const { code, err } = await twiceproof(...args);
      assert.equal(code, 2, args.join(' '));
      assert.match(err, said);
    }),
  );
  assert.match((await twiceproof('list', '--schema', 'not_there')).err, /does not exist\n.*twiceproof migrate/);
});
