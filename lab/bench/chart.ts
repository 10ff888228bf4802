/** Lines over time, one for each round. */
import { color, headOf, left, right, steps, width, type Drawing } from './plot.ts';

const chartHeight = 150;

/** Seconds, and what was seen then. */
export type Point = readonly [second: number, ...values: number[]];
export type Series = readonly Point[];

/** Over the seconds of the run, one line for each round. */
export function chart(title: string, series: readonly Series[], of: (point: Point) => number, limit?: number): Drawing {
  return { height: chartHeight + 60, at: (top) => drawChart({ title, series, of, limit, top }) };
}

interface Chart {
  title: string;
  series: readonly Series[];
  of(point: Point): number;
  limit: number | undefined;
  top: number;
}

function drawChart({ title, series, of, limit, top }: Chart): string[] {
  const points = series.flat();
  const ticks = steps(Math.max(1, limit ?? 0, ...points.map(of)));
  const seconds = steps(Math.max(1, ...points.map(([second]) => second)));
  const [rowsTop, bottom] = [top + 24, top + 24 + chartHeight];
  const x = (second: number): number => left + ((width - left - right) * second) / seconds.at(-1)!;
  const y = (value: number): number => bottom - (chartHeight * value) / ticks.at(-1)!;
  const lines = series.map((each, n) => {
    const path = each.map((point, m) => `${m === 0 ? 'M' : 'L'}${x(point[0]).toFixed(1)} ${y(of(point)).toFixed(1)}`);
    const stroke = [color.blue, color.orange, color.red][n % 3];
    return `<path d="${path.join('')}" fill="none" stroke="${stroke}" stroke-opacity="0.8"/>`;
  });
  return [
    ...headOf(title, [], top),
    ...ticks.flatMap((tick) => [
      `<path d="M${left} ${y(tick).toFixed(1)}H${width - right}" stroke="#e5e5e5"/>`,
      `<text x="${left - 10}" y="${(y(tick) + 4).toFixed(1)}" text-anchor="end" fill="#444">${tick.toLocaleString('en')}</text>`,
    ]),
    ...seconds.map(
      (second) =>
        `<text x="${x(second).toFixed(1)}" y="${bottom + 16}" text-anchor="middle" fill="#444">${second} s</text>`,
    ),
    ...(limit === undefined
      ? []
      : [`<path d="M${left} ${y(limit).toFixed(1)}H${width - right}" stroke="${color.red}" stroke-dasharray="5 4"/>`]),
    `<path d="M${left} ${rowsTop}V${bottom}" stroke="#444"/>`,
    ...lines,
  ];
}
