/** What is demanded, and whether it was reached. */
import { aimedRate, promisedRate } from './cases.ts';
import type { Round } from './edge.ts';

export interface Targets {
  /** Throughput of group commit over that of the plain insert. */
  groupOverPlain: number;
  /** At `promisedRate`, and as an aim at `aimedRate`. */
  p99Ms: number;
}

export const targets: Targets = { groupOverPlain: 2.5, p99Ms: 25 };

export interface Bar {
  name: string;
  /** An aim is reported as a bar is, and fails nothing. */
  kind: 'bar' | 'aim';
  /** Of each round. */
  values: number[];
  /** Their median; their sum, or the greatest, where one is already too many. */
  value: number;
  target: string;
  pass: boolean;
}

export interface Demand<R> extends Pick<Bar, 'name' | 'kind'> {
  of(round: R): number | undefined;
  atLeast?: number;
  below?: number;
  /** The sum over all rounds is 0. */
  none?: true;
  /** Every round must reach it, and not only the median. */
  always?: true;
}

/** The bars whose cases were run. */
export function judge(rounds: readonly Round[], { groupOverPlain, p99Ms }: Targets = targets): Bar[] {
  const group = ({ edge }: Round, rate: number) => edge.group?.latency[rate];
  const hotSum = ({ hot }: Round, of: (run: NonNullable<Round['hot']['hot-group']>) => number): number | undefined => {
    const runs = Object.values(hot);
    return runs.length === 0 ? undefined : runs.reduce((sum, run) => sum + of(run), 0);
  };
  const demands: Demand<Round>[] = [
    {
      name: 'throughput of group commit over that of the plain insert',
      kind: 'bar',
      of: ({ edge }) => ratio(edge.group?.throughput.okPerSecond, edge['plain-insert']?.throughput.okPerSecond),
      atLeast: groupOverPlain,
    },
    {
      name: `group commit at ${promisedRate} requests/s: p99, ms`,
      kind: 'bar',
      of: (round) => group(round, promisedRate)?.p99Ms,
      below: p99Ms,
    },
    {
      name: `group commit at ${promisedRate} requests/s: share answered 2xx`,
      kind: 'bar',
      of: (round) => group(round, promisedRate)?.okShare,
      atLeast: 0.9999,
    },
    { name: 'hot keys: deadlocks', kind: 'bar', of: (round) => hotSum(round, (r) => r.server.deadlocks), none: true },
    {
      name: 'hot keys: serialization failures',
      kind: 'bar',
      of: (round) => hotSum(round, (run) => run.server.serializationFailures),
      none: true,
    },
    {
      name: 'hot keys: answers that differ from the first',
      kind: 'bar',
      of: (round) => hotSum(round, (run) => run.differentAnswers),
      none: true,
    },
    {
      name: `group commit at ${aimedRate} requests/s: p99, ms`,
      kind: 'aim',
      of: (round) => group(round, aimedRate)?.p99Ms,
      below: p99Ms,
    },
  ];
  return judgeBy(demands, rounds);
}

/** The bars of those demands that some round has a value for. */
export function judgeBy<R>(demands: readonly Demand<R>[], rounds: readonly R[]): Bar[] {
  return demands.flatMap((demand) => barOf(demand, rounds));
}

function barOf<R>({ name, kind, of, atLeast, below, none, always }: Demand<R>, rounds: readonly R[]): Bar[] {
  const values = rounds.map(of).filter((value) => value !== undefined);
  if (values.length === 0) return [];
  const sum = (): number => values.reduce((all, each) => all + each, 0);
  const value = none ? sum() : always ? Math.max(...values) : median(values);
  if (none) return [{ name, kind, values, value, target: 'none', pass: value === 0 }];
  const [target, pass] = atLeast === undefined ? [`< ${below}`, value < below!] : [`>= ${atLeast}`, value >= atLeast];
  return [{ name, kind, values, value, target, pass }];
}

/** To three digits; undefined where one of the two was not measured. */
export function ratio(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? undefined : Math.round((1_000 * a) / Math.max(1, b)) / 1_000;
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** The same form, with the median of each number; lists are left out. What is missing in one of them counts as 0 there. */
export function medianOf<T extends object>(all: readonly T[]): T {
  const isNoList = ([, value]: [string, unknown]): boolean => !Array.isArray(value);
  const keys = new Set(all.flatMap((each) => Object.entries(each).filter(isNoList)).map(([key]) => key));
  return Object.fromEntries(
    [...keys].map((key) => {
      const values = all.map((each) => (each as Record<string, number | object | undefined>)[key]);
      const objects = values.filter((value) => typeof value === 'object');
      return [key, objects.length > 0 ? medianOf(objects) : median(values.map((value) => Number(value ?? 0)))];
    }),
  ) as T;
}
