/** What is measured of the relay, and how long. */
import { burstFactors, type SteadyScale } from './steady.ts';

export const caseNames = ['ceiling', 'drain', 'textbook', 'peer', 'steady', 'held'] as const;
export type CaseName = (typeof caseNames)[number];

export interface RelayScale {
  /** From memory, before anything is measured: until Java has compiled what is hot, a broker needs three times the CPU. */
  warmUpRows: number;
  /** The backlog that is drained. */
  rows: number;
  /** The peer's backlog is a small one, in its favour, because each of its polls sorts all of it. */
  peer: { rows: number; capS: number };
  /** Each with as many lanes, at `batch`. */
  shards: readonly number[];
  /** With one shard; each beside its own ceiling. */
  batches: readonly number[];
  /** One of them: that of all other cases. */
  batch: number;
  rounds: number;
  /** How long the ceiling or the baseline is measured at most, in each round. */
  capS: number;
  steady: SteadyScale;
  /** How long the transaction stays open; only once, beside each of the three. */
  heldS: number;
  /** Rows a second meanwhile; the peer gets half of what it can, if that is less. */
  heldPerSecond: number;
}

export const scales = {
  full: {
    warmUpRows: 500_000,
    rows: 1_000_000,
    peer: { rows: 20_000, capS: 20 },
    shards: [1, 2, 4],
    batches: [200, 500, 1_000, 2_000],
    batch: 1_000,
    rounds: 3,
    capS: 20,
    steady: { warmS: 5, measuredS: 20, burstS: 2, afterS: 20, attempts: 3 },
    heldS: 180,
    heldPerSecond: 2_000,
  },
  quick: {
    warmUpRows: 200_000,
    rows: 100_000,
    peer: { rows: 2_000, capS: 2 },
    shards: [1],
    batches: [200, 1_000],
    batch: 1_000,
    rounds: 3,
    capS: 2.5,
    steady: { warmS: 1, measuredS: 2.5, burstS: 0.6, afterS: 6.5, attempts: 1 },
    heldS: 18,
    heldPerSecond: 2_000,
  },
} as const satisfies Record<string, RelayScale>;

/** At which the textbook relay is tried: those at which it can cost the server least. */
export function largeBatches({ batches, batch }: Pick<RelayScale, 'batches' | 'batch'>): number[] {
  return batches.filter((size) => size >= batch);
}

/** For a database to be copied, a process to start, to get warm and to stop. */
const aroundS = 3;
/** What is expected here, for the estimate only. */
const expectedPerSecond = 16_000;

/** How long it will take at most, roughly. */
export function estimatedS(scale: RelayScale, names: readonly CaseName[]): number {
  const drains = scale.batches.length + scale.shards.filter((shards) => shards > 1).length;
  const { warmS, measuredS, burstS, afterS, attempts } = scale.steady;
  const roundS: Record<Exclude<CaseName, 'held'>, number> = {
    ceiling: scale.batches.length * (aroundS + scale.capS),
    drain: drains * (aroundS + scale.rows / expectedPerSecond),
    textbook: largeBatches(scale).length * (aroundS + scale.capS),
    peer: 2 * (aroundS + scale.peer.capS),
    steady: attempts * (aroundS + warmS + 2 * measuredS + 1 + burstFactors.length * (burstS + afterS)),
  };
  const rounds = names.reduce((sum, name) => sum + (name === 'held' ? 0 : roundS[name]), 0);
  const once = names.includes('held') ? 3 * (aroundS + scale.heldS) : 0;
  return 12 + (scale.rows + scale.warmUpRows) / 25_000 + scale.rounds * rounds + once;
}
