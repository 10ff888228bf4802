/** What the programs say of themselves at /metrics, added up over all processes that ever had a role. */
import type { Kept } from './keep.ts';
import type { Program } from './programs.ts';

/** Values by `name{labels}`, as they are written. */
export type Series = ReadonlyMap<string, number>;

export interface Meters {
  /** Asks all that run. Who does not answer in time has said nothing. */
  sample(): Promise<void>;
  /** Of a counter, with this label if one is given. What a killed process counted after its last sample is missing. */
  total(name: string, label?: string): number;
  /** Of a histogram: cumulative counts by their upper bound as it is written, in order, the infinite one last. */
  buckets(name: string): ReadonlyMap<string, number>;
  /** The highest of what those that run have said last; undefined if none has. */
  highest(gauge: string): number | undefined;
}

const patienceMs = 900;

export function createMeters(programs: readonly Program[], kept: readonly Kept[]): Meters {
  const sources = programs.map(({ role, admin }) => ({ admin, kept: kept.find(({ name }) => name === role)! }));
  /** By role, then by the process that had it. */
  const readings = new Map<string, Map<number, Series>>(sources.map((source) => [source.kept.name, new Map()]));
  return {
    sample: async () => {
      await Promise.all(
        sources.map(async ({ admin, kept: { name, pid } }) => {
          const text = await fetch(`${admin}/metrics`, { signal: AbortSignal.timeout(patienceMs) })
            .then(async (answer) => answer.text())
            .catch(() => undefined);
          if (text !== undefined) readings.get(name)?.set(pid, parseMetrics(text));
        }),
      );
    },
    total: (name, label = '') => {
      const all = [...readings.values()].flatMap((ofRole) => [...ofRole.values()]);
      return all.reduce((sum, series) => sum + sumOf(series, name, label), 0);
    },
    buckets: (name) => {
      const sums = new Map<string, number>();
      for (const series of [...readings.values()].flatMap((ofRole) => [...ofRole.values()])) {
        for (const [written, value] of series) {
          const le = written.startsWith(`${name}_bucket{`) ? /le="([^"]+)"/.exec(written)?.[1] : undefined;
          if (le === undefined) continue;
          const bound = le === '+Inf' ? 'Infinity' : le;
          sums.set(bound, (sums.get(bound) ?? 0) + value);
        }
      }
      return sums;
    },
    highest: (gauge) => {
      const said = sources.flatMap(({ kept: { name, pid } }) => readings.get(name)?.get(pid)?.get(gauge) ?? []);
      return said.length > 0 ? Math.max(...said) : undefined;
    },
  };
}

/** Over all its labels, or over those that hold this text. */
export function sumOf(series: Series, name: string, label = ''): number {
  let sum = 0;
  for (const [written, value] of series) {
    if ((written === name || written.startsWith(`${name}{`)) && written.includes(label)) sum += value;
  }
  return sum;
}

export function parseMetrics(text: string): Series {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => {
      const space = line.lastIndexOf(' ');
      return [line.slice(0, space), Number(line.slice(space + 1))];
    }),
  );
}
