/**
 * `npm run bench -- edge`: what idempotency costs at the edge. One server with a full table of keys for all; the cases
 * take turns within each round, so that whatever drifts on this machine hits all of them alike.
 */
import { startPostgres, type PostgresServer } from '@twiceproof/infra/postgres';
import {
  caseNames,
  edgeCases,
  edgeNames,
  estimatedS,
  hotCases,
  hotNames,
  promisedRate,
  type CaseName,
  type EdgeCase,
  type EdgeName,
  type HotName,
  type Scale,
} from './cases.ts';
import { startOrders, type Orders } from './children.ts';
import { claimWays, measureClaims, type ClaimRun, type ClaimWay } from './claims.ts';
import { measure, measureLatency, measureThroughput, rounded, undisturbed } from './measure.ts';
import type { CpuUs, Latency, Target, Throughput } from './measure.ts';
import { preload } from './preload.ts';
import { serverSettings, watchServer, type ServerFacts, type WatchedServer } from './server.ts';

export interface EdgeRun {
  throughput: Throughput;
  /** By the rate, or `own`. */
  latency: Record<string, Latency>;
  server: ServerFacts;
}

interface Percentiles {
  count: number;
  p50Ms: number;
  p99Ms: number;
  p999Ms: number;
}

export interface HotRun {
  rate: number;
  okShare: number;
  /** The ten hottest keys, and all others. */
  hot: Percentiles;
  cold: Percentiles;
  /** Of all requests: the key had been sent before. */
  repeatedShare: number;
  comparedAnswers: number;
  differentAnswers: number;
  cpuUs: CpuUs;
  otherCores: number;
  server: ServerFacts;
}

export interface Round {
  edge: Partial<Record<EdgeName, EdgeRun>>;
  hot: Partial<Record<HotName, HotRun>>;
  claims?: Record<ClaimWay, ClaimRun>;
}

export interface EdgeOptions {
  scale: Scale;
  /** Which cases, of `caseNames`. */
  only: readonly CaseName[];
  seed: number;
  signal: AbortSignal;
  progress(text: string): void;
}

export interface EdgeRounds {
  rounds: Round[];
  keysBefore: number;
  postgresVersion: string;
}

export async function runEdge(options: EdgeOptions): Promise<EdgeRounds> {
  const { scale, only, signal, progress } = options;
  const postgres = await startPostgres({ settings: serverSettings, signal });
  let server: WatchedServer | undefined;
  try {
    await (await startOrders(postgres.url, ['--baseline=none'])).stop(); // It makes the tables.
    progress(`bench: preloading ${(scale.keys + scale.expiringKeys).toLocaleString('en')} keys`);
    const { url, directory } = postgres;
    await preload({ url, directory, scale, expireWithinS: estimatedS(scale, only), progress, signal });
    server = await watchServer(postgres);
    const keysBefore = await server.countKeys();
    const rounds: Round[] = [];
    for (let round = 1; round <= scale.rounds; round += 1) {
      rounds.push(await runRound({ ...options, postgres, server, round }));
    }
    return { rounds, keysBefore, postgresVersion: postgres.version };
  } finally {
    await server?.close();
    await postgres.close();
  }
}

interface RoundContext extends EdgeOptions {
  postgres: PostgresServer;
  server: WatchedServer;
  round: number;
}

async function runRound(context: RoundContext): Promise<Round> {
  const { scale, only, postgres, server, signal, round } = context;
  const say = (name: CaseName, text: string): void =>
    context.progress(`bench: round ${round} of ${scale.rounds}, ${name}: ${text}`);
  const result: Round = { edge: {}, hot: {} };
  for (const name of edgeNames.filter((each) => only.includes(each))) {
    const run = await runEdgeCase(context, name);
    result.edge[name] = run;
    const latencies = Object.values(run.latency).map(({ rate, p99Ms }) => `p99 ${p99Ms} ms at ${rate}/s`);
    say(name, [`${Math.round(run.throughput.okPerSecond)} requests/s`, ...latencies].join(', '));
  }
  for (const name of hotNames.filter((each) => only.includes(each))) {
    const run = await runHotCase(context, name);
    result.hot[name] = run;
    say(name, `p99 ${run.hot.p99Ms} ms of the hottest, ${run.cold.p99Ms} ms of the others`);
  }
  if (!only.includes('claims')) return result;
  const claims: Partial<Record<ClaimWay, ClaimRun>> = {};
  for (const way of claimWays) {
    signal.throwIfAborted();
    await server.reset();
    const seed = seedOf(context, 'claims', 0);
    claims[way] = await measureClaims(way, { url: postgres.url, postgres: postgres.pid, seed, seconds: scale.claimsS });
    say('claims', `${way} ${claims[way].claimsPerSecond} claims/s, ${claims[way].cpuUs} us of Postgres each`);
  }
  return { ...result, claims: claims as Record<ClaimWay, ClaimRun> };
}

async function runEdgeCase(context: RoundContext, name: EdgeName): Promise<EdgeRun> {
  const { warmupS, throughputS, latencyS, attempts } = context.scale;
  const { args, overload, latencyAt }: EdgeCase = edgeCases[name];
  const [run, server] = await withOrders(context, 1, args, async (target) => {
    const seed = (step: number): number => seedOf(context, name, step);
    const throughput = await measureThroughput(target, {
      seed: seed(0),
      rate: overload,
      warmupS,
      measuredS: throughputS,
    });
    const own = Math.max(100, 100 * Math.round(0.007 * throughput.okPerSecond));
    const rates: [string, number][] = latencyAt === 'own' ? [['own', own]] : latencyAt.map((rate) => [`${rate}`, rate]);
    const latency: Record<string, Latency> = {};
    for (const [index, [key, rate]] of rates.entries()) {
      // Each attempt has other keys.
      latency[key] = await undisturbed(rate === promisedRate ? attempts : 1, async (attempt) =>
        measureLatency(target, { seed: seed(index + 1 + rates.length * attempt), rate, measuredS: latencyS }),
      );
    }
    return { throughput, latency };
  });
  return { ...run, server };
}

async function runHotCase(context: RoundContext, name: HotName): Promise<HotRun> {
  const { warmupS, latencyS } = context.scale;
  const { args, rate } = hotCases[name];
  const [{ result, cost }, server] = await withOrders(context, 2, args, (target) =>
    measure(target, {
      seed: seedOf(context, name, 0),
      rate,
      warmupS,
      measuredS: latencyS,
      // Every key is one of the hot set, which is a million of them; the hottest gets an eighth of all requests.
      args: ['--retry-rate=1', '--hot=1.1', '--keys=50000000'],
    }),
  );
  const { counts, latency, answers } = result;
  const percentiles = ({ count, p50Ms, p99Ms, p999Ms }: Percentiles): Percentiles => ({ count, p50Ms, p99Ms, p999Ms });
  return {
    rate,
    // A connection that was cut on purpose has no answer.
    okShare: rounded(counts.ok / Math.max(1, counts.due - counts.cut), 6),
    hot: percentiles(latency.hot),
    cold: percentiles(latency.cold),
    repeatedShare: rounded(counts.retries / Math.max(1, counts.sent), 3),
    comparedAnswers: answers.compared,
    differentAnswers: answers.different,
    ...cost,
    server,
  };
}

/** New processes on a database that is as the case before found it, but for the keys that it has added. */
async function withOrders<T>(
  { server, postgres, signal }: RoundContext,
  count: number,
  args: readonly string[],
  use: (target: Target) => Promise<T>,
): Promise<[T, ServerFacts]> {
  signal.throwIfAborted();
  await server.reset();
  return server.during(async () => {
    const orders: Orders[] = [];
    try {
      while (orders.length < count) orders.push(await startOrders(postgres.url, args));
      return await use({ orders, postgres: postgres.pid, signal });
    } finally {
      await Promise.all(orders.map(async (each) => each.stop()));
    }
  });
}

/** No two runs of the generator have the same seed, so none meets a key of another; and a case has the same ones alone. */
function seedOf({ seed, round }: RoundContext, name: CaseName, step: number): number {
  return (seed + 1_000 * round + 10 * caseNames.indexOf(name) + step) % 2 ** 32;
}
