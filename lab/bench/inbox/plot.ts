/** Throughput, cost and latencies of the inbox's bench as one SVG that needs nothing else. */
import { color, panelDrawing, picture, type Panel, type Row } from '../plot.ts';
import type { InboxRound } from './inbox.ts';
import { consumeLabels, storeLabel } from './report.ts';
import type { InboxResult } from './result.ts';

const medianAndRounds = [
  ['median', color.light],
  ['each round', 'black'],
] as const;

export function plotInbox(result: InboxResult): string {
  const { median, rounds } = result;
  const panels = [
    throughputPanel(median, rounds),
    costPanel(median),
    keysPanel(median, rounds),
    expiryPanel(median, rounds),
    latencyPanel(median, rounds),
  ];
  return picture(result, rounds.length, panels.flatMap(panelDrawing));
}

/** One bar for the median, and a dot for each round. */
function row(label: string, rounds: readonly InboxRound[], median: InboxRound, of: (round: InboxRound) => number): Row {
  const value = of(median);
  return {
    label,
    note: value >= 1_000 ? Math.round(value).toLocaleString('en') : String(value),
    bars: [{ value, color: color.light }],
    dots: rounds.map((round) => ({ value: of(round), color: 'black' })),
  };
}

function throughputPanel(median: InboxRound, rounds: readonly InboxRound[]): Panel {
  const rows = consumeLabels(median).map(([label, of]) =>
    row(label, rounds, median, (round) => of(round)?.perSecond ?? 0),
  );
  return { title: 'messages/s to committed charges', legend: medianAndRounds, rows, logarithmic: false };
}

function costPanel(median: InboxRound): Panel {
  const colors = { node: color.blue, postgres: color.orange, brokers: color.grey };
  const rows = consumeLabels(median).map(([label, of]): Row => {
    const { cpuUs } = of(median)!;
    const bars = (['node', 'postgres', 'brokers'] as const).map((who) => ({ value: cpuUs[who], color: colors[who] }));
    const note = bars.reduce((sum, { value }) => sum + value, 0).toFixed(0);
    return { label, note, bars, dots: [] };
  });
  return { title: 'CPU for each message, us', legend: Object.entries(colors), rows, logarithmic: false };
}

function keysPanel(median: InboxRound, rounds: readonly InboxRound[]): Panel {
  const rows = Object.keys(median.keys ?? {}).map((name) =>
    row(storeLabel(name), rounds, median, (round) => round.keys?.[name]?.insertP99Us ?? 0),
  );
  return { title: 'p99 of 500 new keys, us', legend: medianAndRounds, rows, logarithmic: false };
}

function expiryPanel(median: InboxRound, rounds: readonly InboxRound[]): Panel {
  const of = (what: 'detachMs' | 'expiryMs' | 'deleteMs', which: 'small' | 'large') => (round: InboxRound) =>
    round.expiry?.[which][what] ?? 0;
  const rows = median.expiry
    ? [
        row('a small day: out of the inbox', rounds, median, of('detachMs', 'small')),
        row('a large day: out of the inbox', rounds, median, of('detachMs', 'large')),
        row('a small day: its files gone', rounds, median, of('expiryMs', 'small')),
        row('a large day: its files gone', rounds, median, of('expiryMs', 'large')),
        row('a small day, by DELETE', rounds, median, of('deleteMs', 'small')),
        row('a large day, by DELETE', rounds, median, of('deleteMs', 'large')),
      ]
    : [];
  return { title: 'the end of a day, ms', legend: medianAndRounds, rows, logarithmic: false };
}

function latencyPanel(median: InboxRound, rounds: readonly InboxRound[]): Panel {
  const rows = Object.keys(median.latency?.rates ?? {}).flatMap((rate) =>
    (['p50Ms', 'p99Ms'] as const).map((which) =>
      row(`${rate} orders/s, ${which.slice(0, 3)}`, rounds, median, (round) => {
        const ms = round.latency?.rates[rate]?.[which] ?? 0;
        return Number.isFinite(ms) ? ms : 0;
      }),
    ),
  );
  return { title: 'from commit to effect, ms', legend: medianAndRounds, rows, logarithmic: false };
}
