/** Throughput, cost and latency of a bench as one SVG that needs nothing else. */
import { edgeCases, edgeNames, hotCases, hotNames } from './cases.ts';
import { targets } from './bars.ts';
import type { Round } from './edge.ts';
import type { Environment } from '../shared/origin.ts';
import type { EdgeResult } from './result.ts';

export const width = 960;
export const left = 250;
export const right = 90;
const rowHeight = 26;
const plotWidth = width - left - right;

export interface Mark {
  value: number;
  color: string;
}

/** One line of a panel: bars end to end from 0, and dots on top of them. */
export interface Row {
  label: string;
  /** Behind the bars. */
  note: string;
  bars: Mark[];
  dots: Mark[];
}

export interface Panel {
  title: string;
  legend: readonly (readonly [string, string])[];
  rows: Row[];
  logarithmic: boolean;
  /** A dashed line. */
  limit?: number;
}

export const color = { blue: '#2166ac', light: '#67a9cf', orange: '#ef8a62', red: '#b2182b', grey: '#9a9a9a' };

/** A part of a picture that knows its height, and is drawn at the place that is left for it. */
export interface Drawing {
  height: number;
  at(top: number): string[];
}

export function panelDrawing(panel: Panel): Drawing[] {
  const height = 92 + rowHeight * panel.rows.length;
  return panel.rows.length === 0 ? [] : [{ height, at: (top) => draw(panel, top) }];
}

/** The drawings below each other, under what they are of. */
export function picture(
  { command, commit, environment }: Pick<EdgeResult, 'command' | 'commit'> & { environment: Environment },
  rounds: number,
  drawings: readonly Drawing[],
): string {
  let top = 62;
  const drawn = drawings.flatMap(({ height, at }) => {
    top += height;
    return at(top - height);
  });
  const about = `${environment.cores} cores of ${environment.cpu}, commit ${commit.slice(0, 12)}, medians of ${rounds}`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${top}" font-family="sans-serif" font-size="12">`,
    `<rect width="${width}" height="${top}" fill="white"/>`,
    `<text x="20" y="26" font-size="14" font-weight="bold">${escape(command)}</text>`,
    `<text x="20" y="44" fill="#444">${escape(about)}</text>`,
    ...drawn,
    '</svg>\n',
  ].join('\n');
}

export function plotEdge(result: EdgeResult): string {
  const { median, rounds } = result;
  const panels = [throughputPanel(median, rounds), costPanel(median), latencyPanel(median, rounds)];
  return picture(result, rounds.length, panels.flatMap(panelDrawing));
}

function throughputPanel({ edge }: Round, rounds: readonly Round[]): Panel {
  const rows = edgeNames.flatMap((name): Row[] => {
    const run = edge[name];
    if (!run) return [];
    const perSecond = run.throughput.okPerSecond;
    const dots = rounds.map((round) => ({ value: round.edge[name]!.throughput.okPerSecond, color: 'black' }));
    const note = Math.round(perSecond).toLocaleString('en');
    return [{ label: labelOf(name), note, bars: [{ value: perSecond, color: color.light }], dots }];
  });
  return {
    title: 'requests/s under overload, 256 connections',
    legend: [
      ['median', color.light],
      ['each round', 'black'],
    ],
    rows,
    logarithmic: false,
  };
}

function costPanel({ edge }: Round): Panel {
  const colors = { orders: color.blue, postgres: color.orange, load: color.grey };
  const rows = edgeNames.flatMap((name): Row[] => {
    const run = edge[name];
    if (!run) return [];
    const { cpuUs } = run.throughput;
    const bars = (['orders', 'postgres', 'load'] as const).map((who) => ({ value: cpuUs[who], color: colors[who] }));
    const note = bars.reduce((sum, { value }) => sum + value, 0).toFixed(0);
    return [{ label: labelOf(name), note, bars, dots: [] }];
  });
  const title = 'CPU for each request under overload, us';
  return { title, legend: Object.entries(colors), rows, logarithmic: false };
}

function latencyPanel({ edge, hot }: Round, rounds: readonly Round[]): Panel {
  const colors = { p50Ms: color.blue, p99Ms: color.orange, p999Ms: color.red };
  type Percentiles = Record<keyof typeof colors, number>;
  const row = (label: string, middle: Percentiles, of: (round: Round) => Percentiles | undefined): Row => ({
    label,
    note: `p99 ${middle.p99Ms.toFixed(1)}`,
    bars: [],
    dots: (Object.keys(colors) as (keyof Percentiles)[]).flatMap((name) =>
      rounds.flatMap((round) => ({ value: of(round)?.[name] ?? middle[name], color: colors[name] })),
    ),
  });
  const rows = edgeNames.flatMap((name) =>
    Object.entries(edge[name]?.latency ?? {}).map(([key, latency]) =>
      row(
        `${labelOf(name)} at ${Math.round(latency.rate).toLocaleString('en')}/s`,
        latency,
        (round) => round.edge[name]?.latency[key],
      ),
    ),
  );
  for (const name of hotNames) {
    for (const which of ['hot', 'cold'] as const) {
      const run = hot[name];
      const label = `${hotCases[name].what}: ${which === 'hot' ? 'ten hottest' : 'others'}`;
      if (run) rows.push(row(label, run[which], (round) => round.hot[name]?.[which]));
    }
  }
  return {
    title: 'latency from the intended send time, ms, each round',
    legend: [
      ['p50', colors.p50Ms],
      ['p99', colors.p99Ms],
      ['p99.9', colors.p999Ms],
    ],
    rows,
    logarithmic: true,
    limit: targets.p99Ms,
  };
}

function labelOf(name: keyof typeof edgeCases): string {
  return `(${edgeCases[name].letter}) ${name}`;
}

function draw({ title, legend, rows, logarithmic, limit }: Panel, top: number): string[] {
  const ends = rows.flatMap(({ bars, dots }) => [sumOf(bars), ...dots.map(({ value }) => value)]);
  const values = [...ends, limit ?? 0].filter((value) => value > 0);
  const ticks = logarithmic ? decades(values) : steps(Math.max(1, ...values));
  const scale = logarithmic ? Math.log10 : (value: number): number => value;
  const [low, high] = [scale(ticks[0]!), scale(ticks.at(-1)!)];
  const x = (value: number): number =>
    left + (plotWidth * (scale(Math.max(value, ticks[0]!)) - low)) / Math.max(1e-9, high - low);
  const rowsTop = top + 34;
  const bottom = rowsTop + rowHeight * rows.length;
  const out = headOf(title, legend, top);
  for (const tick of ticks) {
    const at = x(tick).toFixed(1);
    out.push(`<path d="M${at} ${rowsTop}V${bottom}" stroke="#e5e5e5"/>`);
    out.push(`<text x="${at}" y="${bottom + 16}" text-anchor="middle" fill="#444">${tick.toLocaleString('en')}</text>`);
  }
  if (limit !== undefined) {
    const at = x(limit).toFixed(1);
    out.push(`<path d="M${at} ${rowsTop}V${bottom}" stroke="${color.red}" stroke-dasharray="5 4"/>`);
  }
  rows.forEach((row, index) => out.push(...drawRow(row, rowsTop + rowHeight * index, x)));
  return out;
}

export function headOf(title: string, legend: Panel['legend'], top: number): string[] {
  const names = legend.flatMap(([name, fill], index) => {
    const at = left + 180 + 110 * index;
    return [
      `<rect x="${at}" y="${top + 3}" width="10" height="10" fill="${fill}"/>`,
      `<text x="${at + 16}" y="${top + 12}" fill="#444">${escape(name)}</text>`,
    ];
  });
  return [`<text x="20" y="${top + 12}" font-weight="bold">${escape(title)}</text>`, ...names];
}

function drawRow({ label, note, bars, dots }: Row, top: number, x: (value: number) => number): string[] {
  const middle = top + rowHeight / 2;
  const out = [`<text x="${left - 10}" y="${middle}" dy="4" text-anchor="end">${escape(label)}</text>`];
  let end = 0;
  for (const { value, color: fill } of bars) {
    const size = (x(end + value) - x(end)).toFixed(1);
    out.push(
      `<rect x="${x(end).toFixed(1)}" y="${top + 4}" width="${size}" height="${rowHeight - 8}" fill="${fill}"/>`,
    );
    end += value;
  }
  for (const { value, color: fill } of dots) {
    out.push(`<circle cx="${x(value).toFixed(1)}" cy="${middle}" r="3.5" fill="${fill}" fill-opacity="0.75"/>`);
  }
  out.push(`<text x="${width - right + 12}" y="${middle}" dy="4" fill="#444">${escape(note)}</text>`);
  return out;
}

function sumOf(bars: readonly Mark[]): number {
  return bars.reduce((sum, { value }) => sum + value, 0);
}

/** Powers of ten around all values. */
function decades(values: readonly number[]): number[] {
  const low = Math.floor(Math.log10(Math.min(...values)));
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values))));
  return Array.from({ length: high - low + 1 }, (_, index) => Number((10 ** (low + index)).toPrecision(1)));
}

/** Four to ten round steps from 0. */
export function steps(most: number): number[] {
  const rough = 10 ** Math.floor(Math.log10(most));
  const step = [0.2, 0.5, 1].map((factor) => factor * rough).find((candidate) => most / candidate <= 10) ?? rough;
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, index) => Number((index * step).toPrecision(6)));
}

export function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}
