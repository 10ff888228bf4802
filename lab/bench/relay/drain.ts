/** How fast a program publishes a backlog, and what that costs whom. */
import { setTimeout as delay } from 'node:timers/promises';
import { coresBetween, readCpu, type CpuReading } from '../cpu.ts';
import { rounded } from '../measure.ts';
import type { Program } from './programs.ts';
import type { Database, World } from './world.ts';

/** Microseconds of CPU for each message. */
export interface RelayCpuUs {
  relay: number;
  /** The whole server, with the cleaning up that the messages leave to it. */
  postgres: number;
  /** All three. */
  brokers: number;
}

export interface DrainRun {
  perSecond: number;
  /** How many were published while it was measured. */
  rows: number;
  cpuUs: RelayCpuUs;
  /** For each message. */
  walBytes: number;
  /** In all tables, when the program has stopped. */
  deadTuples: number;
  otherCores: number;
}

export interface DrainCall {
  world: World;
  /** None for the ceiling. */
  database: Database | undefined;
  topic: string;
  /** How many will be published, unless the time is over before. */
  rows: number;
  capS: number;
  start(): Promise<Program>;
  signal: AbortSignal;
}

const lookEveryMs = 50;
/** Before anything counts: a quarter of the rows, until V8 has compiled what is hot. */
const warmShare = 0.25;
/** Whoever has published nothing by then never will. */
const firstWithinMs = 60_000;

export function watchedGroups(world: World, relay: number) {
  return {
    relay: { pids: [relay] },
    postgres: { pids: [world.postgres.pid], withChildren: true },
    brokers: { pids: world.kafka.brokers.map(({ pid }) => pid) },
  } as const;
}

interface Moment {
  cpu: CpuReading<keyof RelayCpuUs>;
  published: number;
  wal: number;
}

export async function measureDrain(call: DrainCall): Promise<DrainRun> {
  const { world, database, topic } = call;
  const before = await world.published(topic);
  const { postgres } = watchedGroups(world, 0);
  const postgresBefore = readCpu({ postgres });
  const program = await call.start();
  let moments: [Moment, Moment];
  try {
    moments = await watch(call, program, before);
  } finally {
    await program.stop();
  }
  const dead = database ? await deadTuples(database) : 0;
  // Now, or it would be chance whether autovacuum comes while it is measured.
  await database?.client.query('VACUUM');
  const postgresAfter = readCpu({ postgres });
  const [begin, end] = moments;
  const rows = end.published - begin.published;
  const seconds = (end.cpu.atMs - begin.cpu.atMs) / 1_000;
  const { others, ...cores } = coresBetween(begin.cpu, end.cpu);
  const us = (share: number): number => rounded((1e6 * share * seconds) / Math.max(1, rows), 2);
  return {
    perSecond: rounded(rows / seconds, 1),
    rows,
    cpuUs: {
      relay: us(cores.relay),
      // From the beginning to the end: what it does once for all of a backlog counts too.
      postgres: rounded((postgresAfter.us.postgres - postgresBefore.us.postgres) / Math.max(1, end.published), 2),
      brokers: us(cores.brokers),
    },
    walBytes: rounded((end.wal - begin.wal) / Math.max(1, rows), 2),
    deadTuples: dead,
    otherCores: rounded(others, 2),
  };
}

async function watch(call: DrainCall, program: Program, before: number): Promise<[Moment, Moment]> {
  const { world, database, topic, rows, capS, signal } = call;
  const groups = watchedGroups(world, program.pid);
  const moment = async (published: number): Promise<Moment> => {
    const wal = database ? await walPosition(database) : 0;
    return { cpu: readCpu(groups), published, wal };
  };
  const givenUpAt = performance.now() + firstWithinMs;
  let begin: Moment | undefined;
  for (;;) {
    signal.throwIfAborted();
    const published = (await world.published(topic)) - before;
    if (begin && (published >= rows || performance.now() - begin.cpu.atMs >= 1_000 * capS)) {
      return [begin, await moment(published)];
    }
    if (!begin && published >= warmShare * rows) begin = await moment(published);
    if (program.hasEnded() || (!begin && performance.now() > givenUpAt)) {
      const end = program.hasEnded() ? 'at its end' : `after ${firstWithinMs} ms`;
      throw new Error(`only ${published} of ${rows} rows were published ${end}: ${program.said()}`);
    }
    await delay(lookEveryMs);
  }
}

export async function walPosition({ client }: Database): Promise<number> {
  const { rows } = await client.query<{ bytes: string }>(
    "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS bytes",
  );
  return Number(rows[0]?.bytes);
}

/** As the statistics have it: backends report at their end, so the program must have ended. */
export async function deadTuples({ client }: Database): Promise<number> {
  const { rows } = await client.query<{ dead: string }>('SELECT sum(n_dead_tup) AS dead FROM pg_stat_user_tables');
  return Number(rows[0]?.dead ?? 0);
}
