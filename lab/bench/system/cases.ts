/** At which rates the whole system is measured, and how long. */
export interface SystemScale {
  /** At the promised rate, before anything counts: until Java has compiled what is hot, a broker needs three times the CPU. */
  warmS: number;
  /** At `promisedRate`. */
  measuredS: number;
  /** At the most, while the host disturbs it. */
  attempts: number;
  /** Other rates, from the lowest: which is the highest at which everything still holds. */
  ladder: readonly number[];
  /** At each of them. */
  ladderS: number;
  rounds: number;
}

/** Requests a second at which it is judged, and at which it is meant to be some day. */
export const promisedRate = 5_000;
export const aimedRate = 10_000;
/** A moment at each rate before anything counts. */
export const settleS = 4;

export const scales = {
  full: {
    warmS: 60,
    measuredS: 300,
    attempts: 2,
    ladder: [1_000, 2_000, 3_000, 4_000, 7_000, 10_000],
    ladderS: 30,
    rounds: 3,
  },
  quick: { warmS: 30, measuredS: 15, attempts: 2, ladder: [1_000, 3_000, 7_000, 10_000], ladderS: 5, rounds: 3 },
} as const satisfies Record<string, SystemScale>;

/** For what has gathered to be done, behind each rate. */
const drainS = 3;

/** How long it will take, roughly. */
export function estimatedS({ warmS, measuredS, ladder, ladderS, rounds }: SystemScale): number {
  const aroundS = settleS + 1 + drainS;
  return 30 + warmS + rounds * (aroundS + measuredS + ladder.length * (aroundS + ladderS));
}
