/**
 * What a transaction that stays open does to each of them: its snapshot keeps every dead row where it is, and who has to
 * step over those needs more and more for each message.
 */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { cpuOf } from '../cpu.ts';
import { rounded } from '../measure.ts';
import { deadTuples } from './drain.ts';
import { startPeer, startRelay, startTextbook, startWriter, type Program } from './programs.ts';
import type { Shape } from './rows.ts';
import type { Database, World } from './world.ts';

export interface HeldRun {
  perSecond: number;
  /** Of the first and the last quarter: CPU of the program's own connections in Postgres, for each message. */
  firstUs: number;
  lastUs: number;
  /** Published in the last quarter, each second. */
  lastPerSecond: number;
  /** Written and not published at the end. */
  lagRows: number;
  deadTuples: number;
}

export interface HeldCall {
  world: World;
  shape: Shape;
  batch: number;
  perSecond: number;
  seconds: number;
  signal: AbortSignal;
}

const lookEveryMs = 100;

export async function measureHeld(call: HeldCall): Promise<HeldRun> {
  const { world, shape, perSecond, seconds } = call;
  const database = await world.database({ shape, shards: 1 }, 0);
  const topic = await world.topic();
  const where = { world, url: database.url, topic };
  const holder = new pg.Client({ connectionString: database.url, application_name: 'holder' });
  const running: { stop(): Promise<void> }[] = [];
  try {
    await hold(holder);
    const program = await startShape(call, where);
    running.push(program);
    const writer = await startWriter(where, { shape, phases: [{ perSecond, seconds }] });
    running.push(writer);
    const readings = await readQuarters({ ...call, topic, program, database, startMs: writer.startMs });
    const { rows } = await writer.ended;
    const published = await world.published(topic);
    await program.stop();
    return {
      perSecond,
      ...comparisonOf(readings),
      lagRows: Math.max(0, rows - published),
      deadTuples: await deadTuples(database),
    };
  } finally {
    await Promise.all(running.map(async (each) => each.stop()));
    await holder.end();
    await database.drop();
  }
}

/** With a snapshot, so that nothing that dies from now on can be removed, and with an id, as a writer has it. */
async function hold(holder: pg.Client): Promise<void> {
  await holder.connect();
  await holder.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
  await holder.query('SELECT pg_current_xact_id()');
}

async function startShape(
  { shape, batch }: HeldCall,
  where: { world: World; url: string; topic: string },
): Promise<Program> {
  if (shape === 'ours') return startRelay(where, { batch, shards: 1 });
  if (shape === 'textbook') return startTextbook(where, { batch });
  return startPeer(where, { listener: 'polling', slot: '' });
}

interface Reading {
  atMs: number;
  us: number;
  published: number;
}

/** At the beginning, after a quarter, after three quarters, and at the end. */
async function readQuarters(
  call: HeldCall & { topic: string; program: Program; database: Database; startMs: number },
): Promise<Reading[]> {
  const { world, topic, program, database, seconds, startMs, signal } = call;
  const readings: Reading[] = [];
  for (const share of [0, 0.25, 0.75, 1]) {
    while (Date.now() < startMs + 1_000 * seconds * share) {
      signal.throwIfAborted();
      await delay(lookEveryMs);
    }
    const us = await backendsUs(database, program.applicationName);
    readings.push({ atMs: Date.now(), us, published: await world.published(topic) });
  }
  return readings;
}

async function backendsUs({ client }: Database, applicationName: string): Promise<number> {
  const { rows } = await client.query<{ pid: number }>(
    'SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1',
    [applicationName],
  );
  return rows.reduce((sum, { pid }) => sum + cpuOf(pid), 0);
}

function comparisonOf(readings: readonly Reading[]): Pick<HeldRun, 'firstUs' | 'lastUs' | 'lastPerSecond'> {
  const [a, b, c, d] = readings as [Reading, Reading, Reading, Reading];
  const us = (from: Reading, to: Reading): number =>
    rounded((to.us - from.us) / Math.max(1, to.published - from.published), 1);
  const lastPerSecond = rounded((1_000 * (d.published - c.published)) / Math.max(1, d.atMs - c.atMs), 1);
  return { firstUs: us(a, b), lastUs: us(c, d), lastPerSecond };
}
