/** What is written when. */
export interface Phase {
  perSecond: number;
  seconds: number;
}

/** `1000x5,5000x2.5` */
export function parsePhases(text: string): Phase[] {
  return text.split(',').map((word) => {
    const [perSecond = NaN, seconds = NaN] = word.split('x').map(Number);
    if (!(perSecond > 0) || !(seconds > 0)) throw new Error(`a phase is rows a second x seconds, not '${word}'`);
    return { perSecond, seconds };
  });
}

export function phasesText(phases: readonly Phase[]): string {
  return phases.map(({ perSecond, seconds }) => `${perSecond}x${seconds}`).join();
}

/** A transaction: so many rows, at that moment after the start. */
export interface Planned {
  phase: number;
  from: number;
  count: number;
  dueMs: number;
}

const transactionsPerSecond = 250;

/** At most 250 transactions a second, evenly spaced; what is more goes into their size, as in a service that is busy. */
export function planPhases(phases: readonly Phase[]): Planned[] {
  const plan: Planned[] = [];
  let beganMs = 0;
  let from = 1;
  phases.forEach(({ perSecond, seconds }, phase) => {
    const transactions = Math.max(1, Math.round(Math.min(transactionsPerSecond, perSecond) * seconds));
    const rows = Math.round(perSecond * seconds);
    for (let n = 0; n < transactions; n += 1) {
      // The remainder is spread evenly.
      const count = Math.floor(((n + 1) * rows) / transactions) - Math.floor((n * rows) / transactions);
      plan.push({ phase, from, count, dueMs: beganMs + (1_000 * seconds * n) / transactions });
      from += count;
    }
    beganMs += 1_000 * seconds;
  });
  return plan;
}

export function rowsOf(phases: readonly Phase[]): number {
  return phases.reduce((sum, { perSecond, seconds }) => sum + Math.round(perSecond * seconds), 0);
}

/** When each phase begins after the start, and at last when all is over. */
export function beginningsMs(phases: readonly Phase[]): number[] {
  const begins = [0];
  for (const { seconds } of phases) begins.push(begins.at(-1)! + 1_000 * seconds);
  return begins;
}
