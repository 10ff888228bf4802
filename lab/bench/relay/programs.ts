/** The programs that publish, each as a process: the relay and what it is compared with. */
import { startServing, type Child } from '../children.ts';
import type { Arrivals } from './arrivals.ts';
import type { Seen } from './lag.ts';
import { phasesText, type Phase } from './phases.ts';
import type { Shape } from './rows.ts';
import type { World } from './world.ts';

export interface Program {
  pid: number;
  /** What its connections are called. */
  applicationName: string;
  /** Of the relay: where its metrics are. */
  admin?: string;
  stop(): Promise<void>;
  hasEnded(): boolean;
  said(): string;
}

interface Where {
  world: World;
  url: string;
  topic: string;
}

async function start(
  { world, url }: Pick<Where, 'world' | 'url'>,
  script: string,
  applicationName: string,
  args: readonly string[],
): Promise<Program> {
  const env = { DATABASE_URL: url, KAFKA_BROKERS: world.kafka.bootstrap };
  const { child, ready } = await startServing(script, args, { env });
  const { pid, stop, said } = child;
  let ended = false;
  child.ended
    .then(() => {
      ended = true;
    })
    .catch(() => {});
  const { admin } = ready as { admin?: string };
  return { pid, applicationName, stop, said, hasEnded: () => ended, ...(admin !== undefined && { admin }) };
}

/** One lane for each shard. */
export async function startRelay(
  where: Where,
  { batch, shards, pollIntervalMs = 10 }: { batch: number; shards: number; pollIntervalMs?: number },
): Promise<Program> {
  const args = [
    `--topics=${where.topic}`,
    `--batch=${batch}`,
    `--lanes=${shards}`,
    `--poll-interval-ms=${pollIntervalMs}`,
    '--admin-port=0',
    '--grace-ms=5000',
  ];
  return start(where, 'apps/relay/main.ts', 'twiceproof-relay', args);
}

export async function startTextbook(where: Where, { batch }: { batch: number }): Promise<Program> {
  return start(where, 'lab/baselines/textbook.ts', 'textbook', ['run', `--batch=${batch}`]);
}

export const listeners = ['polling', 'replication'] as const;
export type Listener = (typeof listeners)[number];

export async function startPeer(
  where: Where,
  { listener, slot }: { listener: Listener; slot: string },
): Promise<Program> {
  const args = ['run', `--topic=${where.topic}`, `--listener=${listener}`, `--slot=${slot}`];
  return start(where, 'lab/baselines/peer.ts', 'peer', args);
}

export async function startCeiling(where: Where, { batch, rows }: { batch: number; rows: number }): Promise<Program> {
  const args = [`--topic=${where.topic}`, `--batch=${batch}`, `--rows=${rows}`];
  return start(where, 'lab/baselines/ceiling.ts', 'ceiling', args);
}

export interface Writer {
  pid: number;
  startMs: number;
  /** What it has committed so far, as it says itself. */
  committed: readonly Seen[];
  /** When it has written all. */
  ended: Promise<{ rows: number; latenessP99Ms: number }>;
  stop(): Promise<void>;
}

export async function startWriter(
  { world, url, topic }: Where,
  { shape, phases }: { shape: Shape; phases: readonly Phase[] },
): Promise<Writer> {
  const committed: Seen[] = [];
  const args = [`--shape=${shape}`, `--topic=${topic}`, `--phases=${phasesText(phases)}`, `--seed=${world.seed}`];
  const result = resultOf<{ rows: number; latenessP99Ms: number }>();
  const { child, ready } = await startServing('lab/bench/relay/writer.ts', args, {
    env: { DATABASE_URL: url },
    onLine: (line) => {
      if ('committed' in line) committed.push({ atMs: Number(line['atMs']), count: Number(line['committed']) });
      else result.take(line);
    },
  });
  return { pid: child.pid, startMs: Number(ready['startMs']), committed, stop: child.stop, ended: result.of(child) };
}

export interface Reader {
  pid: number;
  /** When all has come, or it was stopped. */
  ended: Promise<Arrivals>;
  stop(): Promise<void>;
}

export async function startReader({ world, topic }: Pick<Where, 'world' | 'topic'>, rows: number): Promise<Reader> {
  const result = resultOf<Arrivals>();
  const { child } = await startServing('lab/bench/relay/arrivals.ts', [`--topic=${topic}`, `--rows=${rows}`], {
    env: { KAFKA_BROKERS: world.kafka.bootstrap },
    onLine: result.take,
  });
  return { pid: child.pid, stop: child.stop, ended: result.of(child) };
}

/** What a program says in its last line. */
function resultOf<T>() {
  let result: T | undefined;
  return {
    take: (line: Record<string, unknown>): void => {
      if ('result' in line) result = line['result'] as T;
    },
    of: (child: Child): Promise<T> => {
      const ended = child.ended.then((code) => {
        if (result !== undefined) return result;
        throw new Error(`it ended with ${code} and without a result: ${child.said()}`);
      });
      ended.catch(() => {}); // Whoever waits for it hears of it.
      return ended;
    },
  };
}
