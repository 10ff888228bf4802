/** What becomes of messages that the inbox has forgotten: three runs, of which the first does the harm. */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import pg from 'pg';
import { testDatabase, testKafka } from '@twiceproof/infra/testing';
import type { OutgoingRecord } from 'twiceproof/transport';
import { eventRecord, publish, startPayments, until, type Payments } from './program-under-test.ts';

const kafka = await testKafka();
const orders = 20;
const hourMs = 3_600_000;

/** A floor only rises, so each run has a database of its own. */
async function place(): Promise<{ url: string; pool: pg.Pool }> {
  const { url } = await testDatabase();
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  after(async () => pool.end());
  return { url, pool };
}

const open = await place();
const closed = await place();
const right = await place();

interface Run {
  payments: Payments;
  records: OutgoingRecord[];
  publishAgain(): Promise<void>;
  charges(): Promise<{ charges: number; charged: number }>;
}

/** Orders whose ids are of this time are charged, each once. */
async function charged(
  context: TestContext,
  { url, pool }: { url: string; pool: pg.Pool },
  { args, idTimeMs }: { args: readonly string[]; idTimeMs?: number },
): Promise<Run> {
  const topic = await kafka.createTopic('ttl', { partitions: 2 });
  const payments = await startPayments(context, { databaseUrl: url, brokers: kafka.bootstrap }, [
    `--topics=${topic}`,
    `--group=${topic}`,
    '--no-unique-charge',
    ...args,
  ]);
  const records = Array.from({ length: orders }, () => eventRecord(topic, { idTimeMs: idTimeMs ?? Date.now() }));
  const charges = async () => {
    const { rows } = await pool.query<{ charges: number; charged: number }>(
      'SELECT count(*)::int AS charges, count(DISTINCT order_id)::int AS charged FROM charges',
    );
    return rows[0]!;
  };
  await publish(kafka.bootstrap, records);
  await until(`they are charged; ${payments.stderr()}`, async () => (await charges()).charges === orders);
  return { payments, records, charges, publishAgain: async () => publish(kafka.bootstrap, records) };
}

async function untilForgotten({ pool }: { pool: pg.Pool }, { records }: Run): Promise<void> {
  const ids = records.map(({ headers }) => headers!['ce_id']);
  await until('all are forgotten', async () => {
    const { rows } = await pool.query<{ left: number }>(
      `SELECT (SELECT count(*)::int FROM unnest($1::uuid[]) AS id, twiceproof.inbox_bounds WHERE id >= floor)
         + (SELECT count(*)::int FROM twiceproof.inbox) AS left`,
      [ids],
    );
    return rows[0]!.left === 0;
  });
}

const short = ['--dedup-ttl=4s', '--partition-width=1s', '--unsafe-ttl'];

test('forgotten too soon and run all the same: orders are charged twice', async (context) => {
  const run = await charged(context, open, { args: short });
  assert.match(run.payments.stderr(), /WARNING: --unsafe-ttl: .*may charge an order twice/);
  await untilForgotten(open, run);
  await run.publishAgain();
  await until('they came again', async () => {
    const late = await run.payments.metric('payments_messages_total{verdict="late"}');
    return late === orders;
  });
  assert.deepEqual(await run.charges(), { charges: 2 * orders, charged: orders });
  assert.equal(await run.payments.stop(), 0);
});

test('forgotten too soon and held: nobody is charged twice, and each waits for a person', async (context) => {
  const run = await charged(context, closed, { args: [...short, '--hold-late'] });
  await untilForgotten(closed, run);
  await run.publishAgain();
  const held = async () => run.payments.metric('payments_held_messages');
  await until('they are held', async () => (await held()) === orders);
  assert.equal(await run.payments.metric('payments_held_total{kind="late"}'), orders);
  // Once more: they are held already.
  await run.publishAgain();
  await until('they came again', async () => (await run.payments.metric('payments_batch_messages_sum')) === 3 * orders);
  const { rows } = await closed.pool.query('SELECT kind, count(*)::int AS count FROM twiceproof.held GROUP BY kind');
  assert.deepEqual(rows, [{ kind: 'late', count: orders }]);
  assert.equal(await run.payments.metric('payments_held_total{kind="late"}'), orders);
  assert.deepEqual(await run.charges(), { charges: orders, charged: orders });
  assert.equal(await run.payments.stop(), 0);
});

test('remembered for as long as they can come again: all are caught as duplicates', async (context) => {
  const run = await charged(context, right, { args: [], idTimeMs: Date.now() - 30 * hourMs });
  await run.publishAgain();
  const duplicates = async () => run.payments.metric('payments_messages_total{verdict="duplicate"}');
  await until('they came again', async () => (await duplicates()) === orders);
  assert.deepEqual(await run.charges(), { charges: orders, charged: orders });
  assert.equal(await run.payments.metric('payments_held_messages'), 0);
  assert.equal(await run.payments.stop(), 0);
});
