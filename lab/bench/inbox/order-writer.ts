/** Writes new orders to an outbox at given rates, in an open model: each transaction has its moment, whether the ones before are done or not. */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { EXIT, main, type Context, type FlagSpecs } from '@twiceproof/program';
import { createHistogram, record, summarize } from '../../load/histogram.ts';
import { parsePhases, planPhases, type Planned } from '../relay/phases.ts';

const flags = {
  'database-url': { type: 'string', env: 'DATABASE_URL', help: 'where the outbox is' },
  topic: { type: 'string', default: 'order.events', help: 'that the rows name' },
  phases: { type: 'string', default: '1000x5', help: 'orders a second x seconds, with commas between' },
  connections: { type: 'integer', default: 8, min: 1, max: 100, help: 'transactions under way at once, at most' },
} as const satisfies FlagSpecs;

/** The payload is that of Orders, and the statement is a transaction by itself: created_at is just before the commit. */
const insert = {
  name: 'insert',
  text: `INSERT INTO twiceproof.outbox (shard, topic, aggregate_id, msg_id, event_type, payload, headers)
    SELECT 0, $3::text, id::text, uuidv7(), 'order.created',
      convert_to('{"order_id":"' || id || '","account_id":' || n % 1000 || ',"amount_cents":' || 100 + n % 900 ||
        ',"status":"created","version":1}', 'UTF8'),
      ('{"traceparent":"00-' || lpad(to_hex(n), 32, '0') || '-b7ad6b7169203331-01"}')::json
    FROM (SELECT n, uuidv7() AS id FROM generate_series($1::bigint, $2::bigint) AS n) AS orders`,
};

await main({ name: 'order-writer', summary: 'Writes orders to an outbox at given rates.', flags, run });

async function run({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  const plan = planPhases(parsePhases(given.phases));
  const clients = Array.from(
    { length: given.connections },
    () => new pg.Client({ connectionString: given['database-url'], application_name: 'order-writer' }),
  );
  await Promise.all(clients.map(async (client) => client.connect()));
  const lateness = createHistogram();
  let orders = 0;
  let next = 0;
  const startMs = Date.now() + 100;

  async function write(client: pg.Client, { from, count, dueMs }: Planned): Promise<void> {
    const waitMs = startMs + dueMs - Date.now();
    if (waitMs > 0) await delay(waitMs);
    record(lateness, Math.max(0, Date.now() - startMs - dueMs));
    await client.query({ ...insert, values: [from, from + count - 1, given.topic] });
    orders += count;
  }

  output.ready({ pid: process.pid, startMs });
  try {
    await Promise.all(
      clients.map(async (client) => {
        while (next < plan.length && !signal.aborted) await write(client, plan[next++]!);
      }),
    );
  } finally {
    await Promise.all(clients.map(async (client) => client.end()));
  }
  output.emit({ result: { orders, latenessP99Ms: summarize(lateness).p99Ms } });
  return EXIT.ok;
}
