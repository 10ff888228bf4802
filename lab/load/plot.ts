/** Latency and throughput over time as one SVG that needs nothing else. */
import type { Second } from './meter.ts';

interface Line {
  name: string;
  color: string;
  values: number[];
}

interface Panel {
  title: string;
  top: number;
  lines: Line[];
  /** Latencies span decades; rates do not. */
  logarithmic: boolean;
}

const width = 960;
const left = 70;
const right = 110;
const panelHeight = 230;
const plotWidth = width - left - right;

export function plot(seconds: readonly Second[], title: string): string {
  const of = (pick: (second: Second) => number): number[] => seconds.map(pick);
  const latency: Panel = {
    title: 'latency of the answers of each second, ms, from the intended send time',
    top: 70,
    logarithmic: true,
    lines: [
      { name: 'max', color: '#c9c9c9', values: of(({ latency: { maxMs } }) => maxMs) },
      { name: 'p99.9', color: '#b2182b', values: of(({ latency: { p999Ms } }) => p999Ms) },
      { name: 'p99', color: '#ef8a62', values: of(({ latency: { p99Ms } }) => p99Ms) },
      { name: 'p90', color: '#67a9cf', values: of(({ latency: { p90Ms } }) => p90Ms) },
      { name: 'p50', color: '#2166ac', values: of(({ latency: { p50Ms } }) => p50Ms) },
    ],
  };
  const throughput: Panel = {
    title: 'requests in each second, and how many waited or were in flight at its end',
    top: 70 + panelHeight + 70,
    logarithmic: false,
    lines: [
      { name: 'sent', color: '#c9c9c9', values: of(({ sent }) => sent) },
      { name: 'answered', color: '#2166ac', values: of(({ answered }) => answered) },
      { name: 'errors', color: '#b2182b', values: of(({ errors }) => errors) },
      { name: 'backlog', color: '#ef8a62', values: of(({ waiting, inFlight }) => waiting + inFlight) },
    ],
  };
  const height = throughput.top + panelHeight + 50;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12">`,
    `<rect width="${width}" height="${height}" fill="white"/>`,
    `<text x="${left}" y="28" font-size="14" font-weight="bold">${escape(title)}</text>`,
    ...draw(latency, seconds.length),
    ...draw(throughput, seconds.length),
    '</svg>\n',
  ].join('\n');
}

function draw(panel: Panel, count: number): string[] {
  const { top, title, lines, logarithmic } = panel;
  const bottom = top + panelHeight;
  const ticks = logarithmic ? decades(lines) : steps(lines);
  const scale = logarithmic ? Math.log10 : (value: number): number => value;
  const low = scale(ticks[0]!);
  const span = scale(ticks.at(-1)!) - low;
  const x = (index: number): number => left + (plotWidth * index) / Math.max(1, count - 1);
  const y = (value: number): number => bottom - (panelHeight * (scale(Math.max(value, ticks[0]!)) - low)) / span;
  const out = [`<text x="${left}" y="${top - 10}" fill="#444">${escape(title)}</text>`];
  for (const tick of ticks) {
    const at = y(tick).toFixed(1);
    out.push(`<path d="M${left} ${at}h${plotWidth}" stroke="#e5e5e5"/>`);
    out.push(`<text x="${left - 8}" y="${at}" dy="4" text-anchor="end" fill="#444">${tick}</text>`);
  }
  for (const index of timeTicks(count)) {
    out.push(`<text x="${x(index)}" y="${bottom + 18}" text-anchor="middle" fill="#444">${index + 1} s</text>`);
  }
  lines.forEach(({ name, color, values }, index) => {
    const points = values.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(' ');
    out.push(`<polyline points="${points}" fill="none" stroke="${color}" stroke-width="1.5"/>`);
    const legendY = top + 10 + 20 * index;
    out.push(`<path d="M${width - right + 14} ${legendY}h18" stroke="${color}" stroke-width="3"/>`);
    out.push(`<text x="${width - right + 38}" y="${legendY}" dy="4" fill="#444">${name}</text>`);
  });
  return out;
}

/** Powers of ten around all values; zeros, where nothing was answered, sit on the lowest. */
function decades(lines: readonly Line[]): number[] {
  const values = lines.flatMap((line) => line.values).filter((value) => value > 0);
  const low = Math.floor(Math.log10(smallest(values, 1)));
  const high = Math.max(low + 1, Math.ceil(Math.log10(largest(values, 1))));
  return Array.from({ length: high - low + 1 }, (_, index) => Number((10 ** (low + index)).toPrecision(1)));
}

/** Four to eight round steps from 0. */
function steps(lines: readonly Line[]): number[] {
  const most = largest(
    lines.flatMap((line) => line.values),
    1,
  );
  const rough = 10 ** Math.floor(Math.log10(most));
  const step = [0.2, 0.5, 1, 2].map((factor) => factor * rough).find((candidate) => most / candidate <= 8) ?? rough;
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, index) => Number((index * step).toPrecision(6)));
}

function timeTicks(count: number): number[] {
  const every = Math.max(1, Math.ceil(count / 10));
  return Array.from({ length: Math.ceil(count / every) }, (_, index) => index * every);
}

// Not Math.max(...values): a day has more seconds than a call takes arguments.
function largest(values: readonly number[], fallback: number): number {
  return values.length === 0 ? fallback : values.reduce((most, value) => Math.max(most, value), fallback);
}

function smallest(values: readonly number[], fallback: number): number {
  return values.reduce((least, value) => Math.min(least, value), fallback);
}

function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}
