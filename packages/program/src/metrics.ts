/** As much of Prometheus's text format as our programs need. */
export interface Metrics {
  counter(name: string, help: string, labels: readonly string[]): (...values: string[]) => void;
  /** A counter without labels, to which any number is added. */
  total(name: string, help: string): (count: number) => void;
  /** What is so at the moment; undefined where nobody knows. */
  gauge(name: string, help: string, read: () => number | undefined): void;
  /** In seconds, unless other bounds are given. */
  histogram(
    name: string,
    help: string,
    labels: readonly string[],
    bounds?: readonly number[],
  ): (value: number, ...values: string[]) => void;
  text(): string;
}

export const contentType = 'text/plain; version=0.0.4; charset=utf-8';

/** In seconds. Close together around what is promised: 25 and 60 ms, and 100 and 250 from end to end. */
const secondsBounds = [
  0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4,
  0.5, 0.75, 1, 2.5, 5, 10,
];

export function createMetrics(): Metrics {
  const families: (() => string)[] = [];
  return {
    counter(name, help, labels) {
      const counts = new Map<string, number>();
      families.push(() => {
        const lines = [...counts].map(([values, count]) => `${name}{${pairs(labels, values)}} ${count}`);
        return [`# HELP ${name} ${help}`, `# TYPE ${name} counter`, ...lines].join('\n');
      });
      return (...values) => {
        const joined = values.join();
        counts.set(joined, (counts.get(joined) ?? 0) + 1);
      };
    },
    total(name, help) {
      let sum = 0;
      families.push(() => `# HELP ${name} ${help}\n# TYPE ${name} counter\n${name} ${sum}`);
      return (count) => {
        sum += count;
      };
    },
    gauge(name, help, read) {
      families.push(() => {
        const value = read();
        const head = `# HELP ${name} ${help}\n# TYPE ${name} gauge`;
        return value === undefined ? head : `${head}\n${name} ${value}`;
      });
    },
    histogram(name, help, labels, bounds = secondsBounds) {
      const series = new Map<string, { counts: number[]; sum: number }>();
      families.push(() => {
        const lines = [...series].flatMap(([values, { counts, sum }]) => {
          const labelled = pairs(labels, values);
          let total = 0;
          const buckets = [...bounds, '+Inf'].map((bound, n) => {
            total += counts[n]!;
            return `${name}_bucket{${[...(labelled ? [labelled] : []), `le="${bound}"`].join()}} ${total}`;
          });
          const braces = labelled && `{${labelled}}`;
          return [...buckets, `${name}_sum${braces} ${sum}`, `${name}_count${braces} ${total}`];
        });
        return [`# HELP ${name} ${help}`, `# TYPE ${name} histogram`, ...lines].join('\n');
      });
      return (value, ...values) => {
        const joined = values.join();
        let one = series.get(joined);
        if (!one) {
          one = { counts: Array.from({ length: bounds.length + 1 }, () => 0), sum: 0 };
          series.set(joined, one);
        }
        let n = 0;
        while (n < bounds.length && value > bounds[n]!) n += 1;
        one.counts[n]! += 1;
        one.sum += value;
      };
    },
    text: () => `${families.map((family) => family()).join('\n')}\n`,
  };
}

/** Values are words of our programs, never a client's: no label names a tenant, a key or an order. */
function pairs(labels: readonly string[], joined: string): string {
  if (labels.length === 0) return '';
  const values = joined.split(',');
  return labels.map((label, n) => `${label}="${values[n]}"`).join();
}
