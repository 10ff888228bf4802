/** What is measured, and how long. */

/** Requests a second at which the edge is judged: what is promised, and what is aimed at. */
export const promisedRate = 5_000;
export const aimedRate = 10_000;

export interface EdgeCase {
  /** As in the issue that asks for it. */
  letter: string;
  what: string;
  /** Of `apps/orders/main.ts`. */
  args: readonly string[];
  /** Requests/s, clearly more than it can answer on two cores. Not more than that: dropping them is work as well. */
  overload: number;
  /** At which requests/s latencies are taken: these, or seven tenths of its own throughput. */
  latencyAt: readonly number[] | 'own';
}

/** Every request has a key of its own, so that each case does its whole work for each request. */
export const edgeCases = {
  'no-database': {
    letter: 'a',
    what: 'a handler with no database',
    args: ['--baseline=no-database'],
    overload: 25_000,
    latencyAt: [promisedRate],
  },
  'plain-insert': {
    letter: 'b',
    what: 'one INSERT, a transaction by itself',
    args: ['--baseline=none'],
    overload: 10_000,
    latencyAt: 'own',
  },
  'outbox-only': {
    letter: "b'",
    what: 'a transaction with order and outbox row, not idempotent',
    args: ['--baseline=outbox-only'],
    overload: 6_000,
    latencyAt: 'own',
  },
  handler: {
    letter: 'c',
    what: 'any-handler idempotency',
    args: ['--shape=handler'],
    overload: 6_000,
    latencyAt: 'own',
  },
  group: {
    letter: 'd',
    what: 'group commit',
    args: ['--shape=group'],
    overload: 25_000,
    latencyAt: [promisedRate, aimedRate],
  },
} as const satisfies Record<string, EdgeCase>;

export interface HotCase {
  what: string;
  args: readonly string[];
  rate: number;
}

/** Two processes on one database; every key comes by Zipf's law and is sent 2 to 4 times, also to both at once. */
export const hotCases = {
  'hot-handler': { what: 'hot keys, any-handler', args: ['--shape=handler'], rate: 500 },
  'hot-group': { what: 'hot keys, group commit', args: ['--shape=group'], rate: 2_500 },
} as const satisfies Record<string, HotCase>;

export type EdgeName = keyof typeof edgeCases;
export type HotName = keyof typeof hotCases;
export type CaseName = EdgeName | HotName | 'claims';

export const edgeNames = Object.keys(edgeCases) as EdgeName[];
export const hotNames = Object.keys(hotCases) as HotName[];
export const caseNames: readonly CaseName[] = [...edgeNames, ...hotNames, 'claims'];

export interface Scale {
  /** Unless others are asked for. */
  cases: readonly CaseName[];
  /** In the idempotency table before the first measurement; none of them expires meanwhile. */
  keys: number;
  /** Besides those: keys that come to the end of their retention while this runs. */
  expiringKeys: number;
  rounds: number;
  /** Of a new process under overload, before anything counts: some 10,000 requests until V8 has compiled what is hot. */
  warmupS: number;
  throughputS: number;
  /** At each rate. */
  latencyS: number;
  /** How often latency at the promised rate is measured at the most, where the host disturbs it; no more than 4. */
  attempts: number;
  /** For each way to claim. */
  claimsS: number;
}

/** 1,000 to 2,500 keys expire in each second: so many has a service to forget that gets as many new ones. */
export const scales = {
  full: {
    cases: caseNames,
    keys: 10_000_000,
    expiringKeys: 3_000_000,
    rounds: 3,
    warmupS: 8,
    throughputS: 15,
    latencyS: 20,
    attempts: 4,
    claimsS: 8,
  },
  quick: {
    cases: ['no-database', 'plain-insert', 'group', 'hot-group', 'claims'],
    keys: 1_000_000,
    expiringKeys: 300_000,
    rounds: 3,
    warmupS: 3,
    throughputS: 3,
    latencyS: 3,
    attempts: 2,
    claimsS: 2,
  },
} as const satisfies Record<string, Scale>;

/**
 * Before the latencies of a rate count: Orders is warm, but the backlog of what came before must be gone, and the generator
 * is a new process, which V8 compiles meanwhile.
 */
export const settleS = 3;

/** For a process to start, and to stop; for a checkpoint between two cases. */
const aroundS = 2.5;
const keysPreloadedPerSecond = 60_000;

/** How long it will take at the most, roughly: keys must go on expiring until the end. */
export function estimatedS(scale: Scale, names: readonly CaseName[]): number {
  const loadS = (measuredS: number, beforeS = settleS): number => beforeS + measuredS + 1;
  const ofCase = (name: CaseName): number => {
    if (name === 'claims') return 2 * scale.claimsS;
    if (name in hotCases) return aroundS + loadS(scale.latencyS, scale.warmupS);
    const { latencyAt } = edgeCases[name as EdgeName] as EdgeCase;
    const windows =
      latencyAt === 'own' ? 1 : latencyAt.length + (latencyAt.includes(promisedRate) ? scale.attempts - 1 : 0);
    return aroundS + loadS(scale.throughputS, scale.warmupS) + windows * loadS(scale.latencyS);
  };
  const roundS = names.reduce((sum, name) => sum + ofCase(name), 0);
  return 5 + (scale.keys + scale.expiringKeys) / keysPreloadedPerSecond + scale.rounds * roundS;
}
