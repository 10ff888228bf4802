/**
 * `npm run bench -- relay`: what the relay reaches beside what it is compared with. The same servers for all; the cases
 * take turns within each round, so that whatever drifts on this machine hits all of them alike.
 */
import { runProgram } from '../children.ts';
import { median } from '../bars.ts';
import { type CaseName, type RelayScale, largeBatches } from './cases.ts';
import { measureDrain, type DrainRun } from './drain.ts';
import { measureHeld, type HeldRun } from './held.ts';
import { listeners, startCeiling, startPeer, startRelay, startTextbook, type Listener } from './programs.ts';
import { shapes, type Shape } from './rows.ts';
import { measureSteady, type SteadyResult, type SteadyRun } from './steady.ts';
import { backlogTopic, fill, startWorld, type Database, type Form, type World } from './world.ts';

export interface RelayRound {
  /** By the batch size. */
  ceiling: Record<string, DrainRun>;
  /** By shards and batch size, as in `1x200`. */
  drain: Record<string, DrainRun>;
  /** By the batch size. */
  textbook: Record<string, DrainRun>;
  peer: Partial<Record<Listener, DrainRun>>;
  steady?: SteadyRun;
}

export interface RelayOptions {
  scale: RelayScale;
  only: readonly CaseName[];
  seed: number;
  signal: AbortSignal;
  progress(text: string): void;
}

export interface RelayRounds {
  rounds: RelayRound[];
  /** The lag of each round. */
  series: SteadyResult['series'][];
  held: Partial<Record<Shape, HeldRun>>;
  versions: { postgres: string; kafka: string };
}

/** For bursts when nothing was drained before. */
const assumedLimit = 15_000;

export async function runRelay(options: RelayOptions): Promise<RelayRounds> {
  const { scale, only, seed, signal, progress } = options;
  const world = await startWorld(seed, signal);
  try {
    await warmUp(world, scale.warmUpRows, signal);
    const rounds: RelayRound[] = [];
    const series: SteadyResult['series'][] = [];
    for (let round = 1; round <= scale.rounds; round += 1) {
      const say = (text: string): void => progress(`bench: round ${round} of ${scale.rounds}, ${text}`);
      const { result, lag } = await runRound({ ...options, world, say });
      rounds.push(result);
      series.push(...(lag ? [lag] : []));
    }
    const held = only.includes('held') ? await runHeld(options, world, rounds) : {};
    const versions = { postgres: world.postgres.version, kafka: world.kafka.version };
    return { rounds, series, held, versions };
  } finally {
    await world.close();
  }
}

async function warmUp(world: World, rows: number, signal: AbortSignal): Promise<void> {
  const where = { world, url: '', topic: backlogTopic };
  const start = async () => startCeiling(where, { batch: 500, rows });
  await measureDrain({ world, database: undefined, topic: backlogTopic, rows, capS: 60, start, signal });
}

interface RoundContext extends RelayOptions {
  world: World;
  say(text: string): void;
}

async function runRound(
  context: RoundContext,
): Promise<{ result: RelayRound; lag: SteadyResult['series'] | undefined }> {
  const { scale, only, world, signal, say } = context;
  const result: RelayRound = { ceiling: {}, drain: {}, textbook: {}, peer: {} };
  for (const batch of scale.batches) {
    const key = `1x${batch}`;
    // Beside each other, since what drifts most is how warm the brokers are, and what the host leaves of the cores.
    if (only.includes('ceiling')) result.ceiling[batch] = await ceiling(context, batch);
    if (only.includes('drain')) result.drain[key] = await drain(context, { shards: 1, batch });
    if (only.includes('textbook') && largeBatches(scale).includes(batch)) {
      result.textbook[batch] = await textbook(context, batch);
    }
  }
  for (const shards of scale.shards.filter((count) => count > 1)) {
    const { batch } = scale;
    if (only.includes('drain')) result.drain[`${shards}x${batch}`] = await drain(context, { shards, batch });
  }
  for (const listener of only.includes('peer') ? listeners : []) {
    result.peer[listener] = await peer(context, listener);
  }
  if (!only.includes('steady')) return { result, lag: undefined };
  const limit = result.drain[`1x${scale.batch}`]?.perSecond ?? assumedLimit;
  const { run, series } = await measureSteady({ world, scale: scale.steady, batch: scale.batch, limit, signal });
  const { p50Ms, p99Ms } = run.latency['1000']!;
  say(`steady: p50 ${p50Ms} ms, p99 ${p99Ms} ms at 1000/s; flat after ${flatTimes(run)} s`);
  return { result: { ...result, steady: run }, lag: series };
}

function flatTimes({ bursts }: SteadyRun): string {
  return Object.values(bursts)
    .map(({ flatAfterS }) => flatAfterS)
    .join(' and ');
}

async function ceiling({ world, scale, signal, say }: RoundContext, batch: number): Promise<DrainRun> {
  const { rows, capS } = scale;
  signal.throwIfAborted();
  const where = { world, url: '', topic: backlogTopic };
  const start = async () => startCeiling(where, { batch, rows });
  const run = await measureDrain({ world, database: undefined, topic: backlogTopic, rows, capS, start, signal });
  say(`ceiling, batches of ${batch}: ${Math.round(run.perSecond)} rows/s`);
  return run;
}

async function drain(context: RoundContext, { shards, batch }: { shards: number; batch: number }): Promise<DrainRun> {
  const { world } = context;
  const label = `relay, ${shards} shards, batches of ${batch}`;
  return backlog(
    context,
    label,
    { shape: 'ours', shards },
    (url) => startRelay({ world, url, topic: backlogTopic }, { batch, shards }),
    Infinity,
  );
}

async function textbook(context: RoundContext, batch: number): Promise<DrainRun> {
  const { world } = context;
  const form: Form = { shape: 'textbook', shards: 1 };
  const start = async (url: string) => startTextbook({ world, url, topic: backlogTopic }, { batch });
  return backlog(context, `textbook, batches of ${batch}`, form, start);
}

/** Of all rows, in the time that baselines have. */
async function backlog(
  { world, scale, signal, say }: RoundContext,
  label: string,
  form: Form,
  start: (url: string) => ReturnType<typeof startTextbook>,
  capS: number = scale.capS,
): Promise<DrainRun> {
  signal.throwIfAborted();
  const { rows } = scale;
  const database = await world.database(form, rows);
  try {
    const call = { world, database, topic: backlogTopic, rows, capS, signal };
    const run = await measureDrain({ ...call, start: async () => start(database.url) });
    say(`${label}: ${Math.round(run.perSecond)} rows/s, ${run.cpuUs.postgres} us of Postgres each`);
    return run;
  } finally {
    await database.drop();
  }
}

let slots = 0;

async function peer(context: RoundContext, listener: Listener): Promise<DrainRun> {
  const { world, scale, seed, signal, say } = context;
  signal.throwIfAborted();
  const form: Form = { shape: 'peer', shards: 1 };
  const { rows, capS } = scale.peer;
  const slot = `peer_${(slots += 1)}`;
  const database = await world.database(form, listener === 'polling' ? rows : 0);
  try {
    if (listener === 'replication') await fillBehindSlot(database, { ...form, rows, seed }, slot);
    const topic = await world.topic();
    const start = async () => startPeer({ world, url: database.url, topic }, { listener, slot });
    const run = await measureDrain({ world, database, topic, rows, capS, start, signal });
    say(`peer, ${listener}: ${Math.round(run.perSecond)} rows/s, ${run.cpuUs.postgres} us of Postgres each`);
    return run;
  } finally {
    await database.drop();
  }
}

/** A slot shows what is written after it was made. */
async function fillBehindSlot(database: Database, rows: Parameters<typeof fill>[1], slot: string): Promise<void> {
  await runProgram('lab/baselines/peer.ts', ['slot', `--slot=${slot}`], { DATABASE_URL: database.url });
  await fill(database.url, rows);
}

async function runHeld(
  { scale, signal, progress }: RelayOptions,
  world: World,
  rounds: readonly RelayRound[],
): Promise<RelayRounds['held']> {
  const held: RelayRounds['held'] = {};
  const peerRates = rounds.flatMap(({ peer: { polling } }) => (polling ? [polling.perSecond] : []));
  const peerPerSecond = Math.round(Math.min(scale.heldPerSecond, peerRates.length > 0 ? median(peerRates) / 2 : 100));
  for (const shape of shapes) {
    const perSecond = shape === 'peer' ? Math.max(1, peerPerSecond) : scale.heldPerSecond;
    const call = { world, shape, batch: scale.batch, perSecond, seconds: scale.heldS, signal };
    const run = await measureHeld(call);
    held[shape] = run;
    progress(`bench: ${shape} beside an open transaction: ${run.firstUs} us, then ${run.lastUs} us of Postgres each`);
  }
  return held;
}
