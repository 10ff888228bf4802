/** What is measured of the inbox, and how long. */
export const caseNames = ['consume', 'keys', 'expiry', 'latency'] as const;
export type CaseName = (typeof caseNames)[number];

/** Who consumes, besides the ceiling. */
export const ways = ['textbook', 'each', 'set'] as const;
export type Way = (typeof ways)[number];

/** In percent of all messages. At 100 the whole topic was consumed before. */
export type DuplicatesPercent = 0 | 5 | 30 | 100;

export interface ConsumeScale {
  /** In each topic. */
  messages: number;
  /** Who meets which share of duplicates. */
  ways: Readonly<Record<DuplicatesPercent, readonly Way[]>>;
  /** Before anything counts: at most so long after the first message, or a quarter of all of them. */
  warmS: number;
  /** How long one is measured at most. */
  capS: number;
}

export interface KeysScale {
  /** Compared with the first of them; they take alternating batches. */
  partitioned: readonly number[];
  /** In one table without partitions. */
  plain: number;
  /** UUIDv4, in one table without partitions. */
  random: number;
  /** Of 500 keys, for each table in each round. */
  batches: number;
}

export interface ExpiryScale {
  smallDay: number;
  largeDay: number;
  /** Expiries of each size in a round: the fastest of them counts. */
  repeats: number;
  /** Accepts before an expiry, to compare with. */
  beforeS: number;
  /** For which a transaction stays open beside an expiry. */
  openS: number;
}

export interface LatencyScale {
  /** Until V8 and Java have compiled what is hot. */
  warmS: number;
  /** At each of the two rates. */
  measuredS: number;
  /** How often all of it is measured at most, where the host disturbs it. */
  attempts: number;
}

export interface InboxScale {
  rounds: number;
  consume: ConsumeScale;
  keys: KeysScale;
  expiry: ExpiryScale;
  latency: LatencyScale;
}

export const scales = {
  full: {
    rounds: 3,
    consume: {
      messages: 300_000,
      ways: { 0: ways, 5: ways, 30: ways, 100: ways },
      warmS: 4,
      capS: 15,
    },
    keys: { partitioned: [1_000_000, 10_000_000], plain: 10_000_000, random: 5_000_000, batches: 600 },
    expiry: { smallDay: 100_000, largeDay: 2_000_000, repeats: 10, beforeS: 10, openS: 10 },
    latency: { warmS: 20, measuredS: 20, attempts: 3 },
  },
  quick: {
    rounds: 3,
    consume: {
      messages: 30_000,
      ways: { 0: ways, 5: ['set'], 30: ['set'], 100: ['set'] },
      warmS: 0.75,
      capS: 1.5,
    },
    keys: { partitioned: [1_000_000, 10_000_000], plain: 1_000_000, random: 1_000_000, batches: 200 },
    expiry: { smallDay: 20_000, largeDay: 200_000, repeats: 5, beforeS: 1, openS: 2.5 },
    latency: { warmS: 5, measuredS: 3.5, attempts: 1 },
  },
} as const satisfies Record<string, InboxScale>;

/** For a process to start, to join its group, and to stop. */
const aroundS = 2;
const keysFilledPerSecond = 300_000;
const keysGrownPerSecond = 120_000;
const batchS = 0.007;

/** How long it will take at most, roughly. */
export function estimatedS(scale: InboxScale, names: readonly CaseName[]): number {
  const { rounds, consume, keys, expiry, latency } = scale;
  const runs = Object.values(consume.ways).flat().length;
  const stores = keys.partitioned.length + 2;
  const days = expiry.repeats * (expiry.smallDay + expiry.largeDay) + 4 * expiry.largeDay;
  const onceS: Record<CaseName, number> = {
    consume: (3 * consume.messages) / 20_000,
    keys: sum(keys.partitioned) / keysFilledPerSecond + (keys.plain + keys.random) / keysGrownPerSecond,
    expiry: 0,
    latency: 0,
  };
  const roundS: Record<CaseName, number> = {
    consume: (runs + 1) * (aroundS + consume.warmS + consume.capS) + consume.capS,
    keys: stores * keys.batches * batchS,
    expiry: days / keysFilledPerSecond + 2 * expiry.beforeS + expiry.openS + 2,
    latency: latency.attempts * (2 * aroundS + latency.warmS + 2 * (latency.measuredS + 2)),
  };
  return 12 + names.reduce((all, name) => all + onceS[name] + rounds * roundS[name], 0);
}

function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0);
}
