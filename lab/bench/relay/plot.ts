/** Throughput, cost and lag of the relay's bench as one SVG that needs nothing else. */
import { chart } from '../chart.ts';
import { color, panelDrawing, picture, type Panel } from '../plot.ts';
import type { RelayRound } from './relay.ts';
import { drainLabels } from './report.ts';
import type { RelayResult } from './result.ts';
import { flatness } from './steady.ts';

export function plotRelay(result: RelayResult): string {
  const { median, rounds, series } = result;
  const panels = [throughputPanel(median, rounds), costPanel(median)].flatMap(panelDrawing);
  const charts = series.some((points) => points.length > 0)
    ? [
        chart('lag in rows, each round', series, ([, rows = 0]) => rows),
        chart('age of the oldest row, ms', series, ([, , ageMs = 0]) => ageMs, flatness.ageMs),
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
