/** What is demanded of the inbox, and whether it was reached. */
import { judgeBy, type Bar, type Demand } from '../bars.ts';
import type { InboxScale, Way } from './cases.ts';
import type { ConsumeRun } from './consume.ts';
import type { Beside, Forgetting } from './expiry.ts';
import type { InboxRound } from './inbox.ts';
import { storeName } from './keys.ts';
import { latencyRates } from './latency.ts';

export interface InboxTargets {
  /** Throughput of the set handler over that of the textbook, without duplicates. */
  setOverTextbook: number;
  /** p99 of an insert in the largest inbox over that in the smallest. */
  insertOverSmall: number;
  /** Work and time of the expiry of a large day over that of a small one. */
  expiryOverSmall: number;
  /** What an accept may wait while a day goes. */
  acceptMs: number;
  /** By the rate. */
  p99Ms: Readonly<Record<(typeof latencyRates)[number], number>>;
}

export const inboxTargets: InboxTargets = {
  setOverTextbook: 10,
  insertOverSmall: 1.25,
  expiryOverSmall: 1.5,
  acceptMs: 200,
  p99Ms: { 1000: 100, 5000: 250 },
};

/** The bars whose cases were run. */
export function judgeInbox(
  rounds: readonly InboxRound[],
  { keys }: Pick<InboxScale, 'keys'>,
  targets: InboxTargets = inboxTargets,
): Bar[] {
  const bar = { kind: 'bar' } as const;
  const perSecond = ({ consume }: InboxRound, way: Way) => consume?.ways[way]?.[0]?.perSecond;
  const [small, large] = [keys.partitioned[0]!, keys.partitioned.at(-1)!];
  const insertP99 = (round: InboxRound, size: number) =>
    round.keys?.[storeName({ kind: 'partitioned', keys: size })]?.insertP99Us;
  const longest = (name: string, of: (round: InboxRound) => Beside | undefined): Demand<InboxRound> => ({
    ...bar,
    name,
    of: (round) => of(round)?.longestAcceptMs,
    below: targets.acceptMs,
    always: true,
  });
  const overSmall = (name: string, of: (run: Forgetting) => number): Demand<InboxRound> => ({
    ...bar,
    name,
    of: ({ expiry }) => expiry && quotient(of(expiry.large), of(expiry.small)),
    below: targets.expiryOverSmall,
  });
  const demands: Demand<InboxRound>[] = [
    {
      ...bar,
      name: 'messages/s of the set handler over those of the textbook',
      of: (round) => quotient(perSecond(round, 'set'), perSecond(round, 'textbook')),
      atLeast: targets.setOverTextbook,
    },
    {
      ...bar,
      name: `insert p99 with ${inMillions(large)} M keys over that with ${inMillions(small)} M`,
      of: (round) => quotient(insertP99(round, large), insertP99(round, small)),
      below: targets.insertOverSmall,
    },
    overSmall('time until a large day is out of the inbox over that of a small one', ({ detachMs }) => detachMs),
    overSmall('WAL of the expiry of a large day over that of a small one', ({ expiryWalBytes }) => expiryWalBytes),
    // Files are given back by the file system, and it takes longer over large ones.
    {
      ...overSmall('time until the files of a large day are gone over a small one', ({ expiryMs }) => expiryMs),
      kind: 'aim',
    },
    longest('longest accept during an expiry, ms', ({ expiry }) => expiry?.loaded),
    longest('longest accept during an expiry beside an open transaction, ms', ({ expiry }) => expiry?.open),
    ...latencyRates.map((rate) => ({
      ...bar,
      name: `commit to effect at ${rate} orders/s: p99, ms`,
      of: ({ latency }: InboxRound) => latency?.rates[rate]?.p99Ms,
      below: targets.p99Ms[rate],
    })),
    { ...bar, name: 'orders that were charged twice or not at all', of: wrongCharges, none: true },
  ];
  return judgeBy(demands, rounds);
}

function wrongCharges({ consume, latency }: InboxRound): number | undefined {
  if (!consume && !latency) return undefined;
  const runs: ConsumeRun[] = Object.values(consume?.ways ?? {}).flatMap((byPercent) => Object.values(byPercent));
  return runs.reduce((sum, run) => sum + run.wrongCharges, latency?.wrongCharges ?? 0);
}

/** To three digits; undefined where one of the two was not measured. */
function quotient(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? undefined : Math.round((1_000 * a) / Math.max(1e-6, b)) / 1_000;
}

function inMillions(count: number): string {
  return String(count / 1e6);
}
