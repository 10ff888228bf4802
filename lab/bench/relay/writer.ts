/** Writes outbox rows at given rates, in an open model: each transaction has its moment, whether the ones before are done or not. */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { EXIT, main, type Context, type FlagSpecs } from '@twiceproof/program';
import { createHistogram, record, summarize } from '../../load/histogram.ts';
import { parsePhases, planPhases, type Planned } from './phases.ts';
import { insertRows, shapes } from './rows.ts';

const flags = {
  'database-url': { type: 'string', env: 'DATABASE_URL', help: 'where the outbox is' },
  shape: { type: 'choice', choices: shapes, default: 'ours', help: 'of the outbox' },
  topic: { type: 'string', default: 'events', help: 'that the rows name' },
  shards: { type: 'integer', default: 1, min: 1, max: 1024, help: 'of the outbox' },
  seed: { type: 'integer', default: 0, min: 0, max: 4_294_967_295, help: 'which keys come when' },
  phases: { type: 'string', default: '1000x5', help: 'rows a second x seconds, with commas between' },
  connections: { type: 'integer', default: 8, min: 1, max: 100, help: 'transactions under way at once, at most' },
} as const satisfies FlagSpecs;

const reportEveryMs = 50;

await main({ name: 'writer', summary: 'Writes outbox rows at given rates.', flags, run });

async function run({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  const plan = planPhases(parsePhases(given.phases));
  const clients = Array.from(
    { length: given.connections },
    () => new pg.Client({ connectionString: given['database-url'], application_name: 'writer' }),
  );
  await Promise.all(clients.map(async (client) => client.connect()));
  const lateness = createHistogram();
  let committed = 0;
  let next = 0;
  const startMs = Date.now() + 100;

  const { shape, topic, shards, seed } = given;
  async function write(client: pg.Client, { phase, from, count, dueMs }: Planned): Promise<void> {
    const waitMs = startMs + dueMs - Date.now();
    if (waitMs > 0) await delay(waitMs);
    record(lateness, Math.max(0, Date.now() - startMs - dueMs));
    await client.query(insertRows(shape, { from, count, phase, topic, shards, seed }));
    committed += count;
  }

  output.ready({ pid: process.pid, startMs });
  const report = (): void => output.emit({ atMs: Date.now(), committed });
  const timer = setInterval(report, reportEveryMs);
  try {
    await Promise.all(
      clients.map(async (client) => {
        while (next < plan.length && !signal.aborted) await write(client, plan[next++]!);
      }),
    );
  } finally {
    clearInterval(timer);
    report();
    await Promise.all(clients.map(async (client) => client.end()));
  }
  output.emit({ result: { rows: committed, latenessP99Ms: summarize(lateness).p99Ms } });
  return EXIT.ok;
}
