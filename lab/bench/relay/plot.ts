/** Throughput, cost and lag of the relay's bench as one SVG that needs nothing else. */
import { color, headOf, left, panelDrawing, picture, right, steps, width, type Drawing, type Panel } from '../plot.ts';
import type { RelayRound } from './relay.ts';
import { drainLabels } from './report.ts';
import type { RelayResult } from './result.ts';
import { flatness, type SteadyResult } from './steady.ts';

const chartHeight = 150;

export function plotRelay(result: RelayResult): string {
  const { median, rounds, series } = result;
  const panels = [throughputPanel(median, rounds), costPanel(median)].flatMap(panelDrawing);
  const charts = series.some((points) => points.length > 0)
    ? [
        chart('lag in rows, each round', series, ([, rows]) => rows),
        chart('age of the oldest row, ms', series, ([, , ageMs]) => ageMs, flatness.ageMs),
      ]
    : [];
  return picture(result, rounds.length, [...panels, ...charts]);
}

function throughputPanel(median: RelayRound, rounds: readonly RelayRound[]): Panel {
  const rows = drainLabels(median).map(([label, of]) => {
    const { perSecond } = of(median)!;
    return {
      label,
      note: Math.round(perSecond).toLocaleString('en'),
      bars: [{ value: perSecond, color: color.light }],
      dots: rounds.map((round) => ({ value: of(round)!.perSecond, color: 'black' })),
    };
  });
  const legend = [
    ['median', color.light],
    ['each round', 'black'],
  ] as const;
  return { title: 'rows/s of a backlog', legend, rows, logarithmic: false };
}

function costPanel(median: RelayRound): Panel {
  const colors = { relay: color.blue, postgres: color.orange, brokers: color.grey };
  const rows = drainLabels(median).map(([label, of]) => {
    const { cpuUs } = of(median)!;
    const bars = (['relay', 'postgres', 'brokers'] as const).map((who) => ({ value: cpuUs[who], color: colors[who] }));
    const note = bars.reduce((sum, { value }) => sum + value, 0).toFixed(0);
    return { label, note, bars, dots: [] };
  });
  return { title: 'CPU for each message, us', legend: Object.entries(colors), rows, logarithmic: false };
}

type Point = SteadyResult['series'][number];

/** Over the seconds of the run, one line for each round. */
function chart(
  title: string,
  series: readonly SteadyResult['series'][],
  of: (point: Point) => number,
  limit?: number,
): Drawing {
  return { height: chartHeight + 60, at: (top) => drawChart({ title, series, of, limit, top }) };
}

interface Chart {
  title: string;
  series: readonly SteadyResult['series'][];
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
