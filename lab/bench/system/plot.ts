/** Times, cost and lag of the whole system as one SVG that needs nothing else. */
import { chart } from '../chart.ts';
import { color, panelDrawing, picture, type Panel } from '../plot.ts';
import { systemTargets } from './bars.ts';
import type { Who } from './measure.ts';
import { runsOf } from './report.ts';
import type { SystemResult } from './result.ts';
import { total, type SystemRound } from './system.ts';

export function plotSystem(result: SystemResult): string {
  const { median, rounds, series } = result;
  const panels = [answerPanel(median, rounds), corePanel(median)].flatMap(panelDrawing);
  return picture(result, rounds.length, [
    ...panels,
    chart('messages without an effect, each round', series, ([, messages = 0]) => messages),
    chart('age of the oldest, ms', series, ([, , ageMs = 0]) => ageMs),
  ]);
}

function answerPanel(median: SystemRound, rounds: readonly SystemRound[]): Panel {
  const rows = runsOf(median).map(({ rate, p50Ms, p99Ms }) => ({
    label: `${rate} requests/s`,
    note: `p99 ${p99Ms.toFixed(0)}`,
    bars: [{ value: p50Ms, color: color.light }],
    dots: rounds.flatMap((round) =>
      runsOf(round).flatMap((run) => (run.rate === rate ? [{ value: run.p99Ms, color: color.red }] : [])),
    ),
  }));
  const legend = [
    ['p50', color.light],
    ['p99 of each round', color.red],
  ] as const;
  return { title: 'POST /orders, ms', legend, rows, logarithmic: true, limit: systemTargets.p99Ms };
}

function corePanel(median: SystemRound): Panel {
  const colors: Record<Who, string> = {
    orders: color.blue,
    postgres: color.orange,
    relay: color.light,
    payments: color.red,
    brokers: color.grey,
    load: '#d9d9d9',
  };
  const rows = runsOf(median).map((run) => ({
    label: `${run.rate} requests/s`,
    note: total(run).toFixed(2),
    bars: Object.entries(colors).map(([who, ofIt]) => ({ value: run.cores[who as Who], color: ofIt })),
    dots: [],
  }));
  return { title: 'cores kept busy', legend: Object.entries(colors), rows, logarithmic: false };
}
