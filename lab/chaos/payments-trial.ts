/** One fault while orders are written, published and charged, and the verdict. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { join } from 'node:path';
import type { Supervised } from '../supervisor/process.ts';
import { writeOrders } from './order-events.ts';
import type { RelayWorld } from './relay-world.ts';

export interface StartOptions {
  /** To Postgres. */
  throughProxy?: boolean;
  args?: readonly string[];
}

export interface PaymentsStage {
  topic: string;
  /** Starts payments under this name, as a member of this trial's group. Those that run in the end must stop when told. */
  start(role: string, options?: StartOptions): Promise<Supervised>;
  /** As `start`, without waiting until it is ready. */
  begin(role: string, options?: StartOptions): Promise<Supervised>;
  /** A name that no other trial has. */
  role(name: string): string;
  /** When so many messages of this trial have had their effect. */
  processed(atLeast: number): Promise<void>;
  /** Appends so many orders whose ids are older than what the inbox remembers. Answers when all of their messages are held. */
  heldAsLate(orders: number): Promise<void>;
  /** As an operator does. The wish stays when payments is gone. */
  askToRedrive(): void;
}

export interface PaymentsOptions {
  orders?: number;
  /** Messages that are held in the end, and so have no effect. Defaults to none. */
  held?: number;
}

const startTimeoutMs = 30_000;
const drainedWithinMs = 90_000;
const root = join(import.meta.dirname, '../..');

/** `arm` starts payments and sets traps; what it answers runs beside the writers, to the end of the fault. */
export async function paymentsTrial(
  world: RelayWorld,
  arm: (stage: PaymentsStage) => Promise<() => Promise<void>>,
  { orders = 200, held = 0 }: PaymentsOptions = {},
): Promise<void> {
  const topic = world.newName();
  await world.admin.createTopic(topic, { partitions: 3 });
  const running: Supervised[] = [];
  const stage: PaymentsStage = {
    topic,
    role: (name) => `${topic}-${name}`,
    processed: async (atLeast) => untilProcessed(world, topic, atLeast),
    heldAsLate: async (count) => {
      await appendOldOrders(world, topic, count);
      await untilHeld(world, topic, count * changesOfOld.length);
    },
    askToRedrive: () => askToRedrive(world, topic),
    begin: async (role, options = {}) => begin(role, options),
    start: async (role, options = {}) => {
      const payments = await begin(role, options);
      await payments.firstJsonLine(startTimeoutMs);
      return payments;
    },
  };
  async function begin(role: string, options: StartOptions): Promise<Supervised> {
    const payments = await startPayments(world, topic, stage.role(role), options);
    running.push(payments);
    return payments;
  }
  try {
    const strike = await arm(stage);
    await Promise.all([writeOrders({ database: world.database, topic, orders }), strike()]);
    await untilProcessed(world, topic, (await written(world, topic)) - held);
    await judge(world, topic, held);
  } finally {
    await stopAll(running.filter((each) => each.running));
  }
}

async function startPayments(
  world: RelayWorld,
  topic: string,
  role: string,
  { throughProxy, args = [] }: StartOptions,
): Promise<Supervised> {
  const url = new URL(world.server.url);
  if (throughProxy) url.host = world.proxy.address;
  return world.lab.start({
    role,
    command: process.execPath,
    args: [
      '--conditions=twiceproof-source',
      'apps/payments/main.ts',
      '--json',
      '--admin-port=0',
      `--topics=${topic}`,
      `--group=${topic}`,
      '--batch=50',
      '--no-unique-charge',
      ...args,
    ],
    env: { DATABASE_URL: url.href, KAFKA_BROKERS: world.kafka.bootstrap },
    cwd: root,
  });
}

const changesOfOld = [
  { status: 'created', amount_cents: 700, type: 'order.created' },
  { status: 'paid', type: 'order.status_changed' },
  { status: 'shipped', type: 'order.status_changed' },
];
const ageOfOldMs = 60 * 86_400_000;

async function appendOldOrders({ database }: RelayWorld, topic: string, orders: number): Promise<void> {
  const time = (Date.now() - ageOfOldMs).toString(16).padStart(12, '0');
  const messages = Array.from({ length: orders }, () => randomUUID()).flatMap((orderId) =>
    changesOfOld.map(({ type, ...change }, before) => {
      const payload = JSON.stringify({ order_id: orderId, version: before + 1, ...change });
      // A UUIDv7: its time, then what a random one has behind it.
      return { orderId, type, payload, id: `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}` };
    }),
  );
  await database.query(
    `INSERT INTO twiceproof.outbox (shard, topic, aggregate_id, msg_id, event_type, payload)
     SELECT (hashtextextended(order_id COLLATE "C", 0) & 9223372036854775807) % shards, $1, order_id, id, type, payload
     FROM twiceproof.settings, unnest($2::text[], $3::uuid[], $4::text[], $5::bytea[]) WITH ORDINALITY
       AS m (order_id, id, type, payload, n) ORDER BY n`,
    [
      topic,
      messages.map(({ orderId }) => orderId),
      messages.map(({ id }) => id),
      messages.map(({ type }) => type),
      messages.map(({ payload }) => Buffer.from(payload)),
    ],
  );
}

async function untilHeld({ database }: RelayWorld, topic: string, count: number): Promise<void> {
  const deadline = performance.now() + drainedWithinMs;
  for (;;) {
    const { rows } = await database.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM twiceproof.held WHERE topic = $1 AND kind = 'late'`,
      [topic],
    );
    if (rows[0]!.count === count) return;
    assert.ok(performance.now() < deadline, `${rows[0]!.count} of ${count} messages are held`);
    await delay(50);
  }
}

function askToRedrive({ server }: RelayWorld, topic: string): void {
  const cli = join(root, 'packages/twiceproof/src/cli/main.ts');
  const what = ['--consumer=payments', '--kind=late', `--topic=${topic}`];
  // Without waiting for what comes of it: that is 1.
  const { status, stderr } = spawnSync(process.execPath, [cli, 'held', 'redrive', ...what, '--wait-ms=0'], {
    env: { ...process.env, DATABASE_URL: server.url },
    encoding: 'utf8',
  });
  assert.ok(status === 0 || status === 1, stderr);
}

async function written({ database }: RelayWorld, topic: string): Promise<number> {
  const { rows } = await database.query<{ count: number }>(
    'SELECT count(*)::int AS count FROM twiceproof.outbox WHERE topic = $1',
    [topic],
  );
  return rows[0]!.count;
}

async function untilProcessed({ database }: RelayWorld, topic: string, atLeast: number): Promise<void> {
  const deadline = performance.now() + drainedWithinMs;
  for (;;) {
    const { rows } = await database
      .query<{ count: number }>(
        `SELECT count(DISTINCT e.msg_id)::int AS count FROM effects e
         JOIN twiceproof.outbox o ON o.msg_id = e.msg_id WHERE o.topic = $1`,
        [topic],
      )
      .catch(() => ({ rows: [{ count: -1 }] })); // The server is away in some trials.
    if (rows[0]!.count >= atLeast) return;
    assert.ok(performance.now() < deadline, `${rows[0]!.count} of ${atLeast} messages have had their effect`);
    await delay(50);
  }
}

/** By SQL alone: distinct effects are distinct intents, each order's in the order of its versions. */
async function judge({ database }: RelayWorld, topic: string, held: number): Promise<void> {
  const { rows } = await database.query(
    `WITH sent AS (SELECT msg_id, aggregate_id::uuid AS order_id, event_type,
         convert_from(payload, 'utf8')::json AS payload FROM twiceproof.outbox WHERE topic = $1),
       done AS (SELECT e.* FROM effects e WHERE e.order_id IN (SELECT order_id FROM sent)),
       paid AS (SELECT c.* FROM charges c WHERE c.order_id IN (SELECT order_id FROM sent))
     SELECT
       (SELECT count(*)::int FROM sent WHERE msg_id NOT IN (SELECT msg_id FROM done)) AS lost,
       (SELECT count(*)::int FROM (SELECT msg_id FROM done GROUP BY msg_id HAVING count(*) > 1) AS d) AS doubled,
       (SELECT count(*)::int FROM done WHERE msg_id NOT IN (SELECT msg_id FROM sent)) AS phantom,
       (SELECT count(*)::int FROM (SELECT order_id FROM paid GROUP BY order_id HAVING count(*) > 1) AS d) AS charged_twice,
       (SELECT count(*)::int FROM sent s WHERE event_type = 'order.created' AND NOT EXISTS (
          SELECT FROM paid p WHERE p.order_id = s.order_id
            AND p.amount_cents = (s.payload ->> 'amount_cents')::bigint)) AS not_charged,
       (SELECT count(*)::int FROM (SELECT version <= lag(version) OVER (PARTITION BY order_id ORDER BY id) AS is_back
          FROM done) AS d WHERE is_back) AS out_of_order,
       (SELECT count(*)::int FROM twiceproof.held WHERE topic = $1) AS held`,
    [topic],
  );
  const none = { doubled: 0, phantom: 0, charged_twice: 0, out_of_order: 0 };
  const { lost, not_charged, ...found } = rows[0] as Record<string, number>;
  assert.deepEqual(found, { ...none, held });
  assert.equal(lost, held, 'what is not held has had its effect');
  assert.ok(not_charged! <= held, `${not_charged} orders are not charged`);
}

async function stopAll(running: readonly Supervised[]): Promise<void> {
  for (const each of running) each.signal('SIGTERM');
  for (const each of running) each.thaw(); // A trial that failed may have left one frozen, and that hears no signal.
  for (const each of running) assert.deepEqual(await each.exited, { code: 0, signal: null }, each.describe());
}

export interface InboxState {
  floor: number;
  ceiling: number;
  /** Of those that are attached, in their order. */
  partitions: { fromMs: number; toMs: number }[];
  /** Partitions that are not attached any more, or not wholly. */
  loose: number;
}

/** By the names of the partitions, which are their bounds. */
export async function inboxState({ database }: RelayWorld): Promise<InboxState> {
  const { rows } = await database.query<{ name: string; attached: boolean; floor: string; ceiling: string }>(
    `SELECT c.relname AS name, COALESCE(NOT i.inhdetachpending, false) AS attached, b.floor, b.ceiling
     FROM twiceproof.inbox_bounds b, pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
     WHERE c.relnamespace = 'twiceproof'::regnamespace AND c.relkind = 'r' AND c.relname ~ '^inbox_[0-9]+_[0-9]+$'`,
  );
  const timeOf = (id: string): number => Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16);
  const partitions = rows
    .filter(({ attached }) => attached)
    .map(({ name }) => name.split('_').slice(1).map(Number))
    .map(([fromMs, toMs]) => ({ fromMs: fromMs!, toMs: toMs! }));
  return {
    floor: timeOf(rows[0]!.floor),
    ceiling: timeOf(rows[0]!.ceiling),
    partitions: partitions.toSorted((a, b) => a.fromMs - b.fromMs),
    loose: rows.length - partitions.length,
  };
}

/** From the floor to the ceiling without a gap, and nothing besides. */
export async function judgeInbox(world: RelayWorld): Promise<void> {
  const deadline = performance.now() + drainedWithinMs;
  for (;;) {
    const { floor, ceiling, partitions, loose } = await inboxState(world);
    const ends = [floor, ...partitions.map(({ toMs }) => toMs)];
    const isWhole = partitions.every(({ fromMs }, n) => (n === 0 ? fromMs <= floor : fromMs === ends[n]));
    const isForgotten = partitions.every(({ toMs }) => toMs > floor) && loose === 0;
    if (isWhole && isForgotten && ends.at(-1) === ceiling) return;
    const found = JSON.stringify({ floor, ceiling, partitions, loose });
    assert.ok(performance.now() < deadline, `the inbox is not whole: ${found}`);
    await delay(50);
  }
}
