/** The result for people. */
import type { Bar } from './bars.ts';
import { edgeCases, edgeNames, hotCases, hotNames, promisedRate, type EdgeName } from './cases.ts';
import { claimWays, type ClaimRun } from './claims.ts';
import type { Round } from './edge.ts';
import type { CpuUs } from './measure.ts';
import type { EdgeResult } from './result.ts';
import { repetitions } from './undisturbed.ts';

export function reportText({ bars, median, rounds, environment, commit, seed, keysBefore }: EdgeResult): string {
  const { cores, cpu, node, postgres, loadAverage } = environment;
  return [
    ...section('throughput under overload, and CPU us for each request', throughputRows(median, rounds)),
    ...section('latency from the intended send time, ms', latencyRows(median)),
    ...section('hot keys by Zipf 1.1 in two processes: the ten hottest against the others', hotRows(median)),
    ...section('claiming in SQL, keys by Zipf 1.1, 16 connections', claimRows(median)),
    ...section('bars', barRows(bars)),
    `medians of ${rounds.length}; ${keysBefore.toLocaleString('en')} keys before; seed ${seed}; commit ${commit}`,
    `${cores} cores of ${cpu}, Node ${node}, Postgres ${postgres}, load average before ${loadAverage}`,
    ...reservations(rounds),
  ].join('\n');
}

export type Row = readonly (string | number)[];

/** Nothing, if there is nothing under the head. The first column is text, the others are numbers. */
export function section(title: string, [head, ...rows]: readonly Row[]): string[] {
  if (!head || rows.length === 0) return [];
  const table = [head, ...rows].map((row) => row.map(String));
  const widths = head.map((_, column) => Math.max(...table.map((row) => row[column]!.length)));
  const line = (row: string[]): string =>
    row.map((cell, n) => (n === 0 ? cell.padEnd(widths[n]!) : cell.padStart(widths[n]!))).join('   ');
  return ['', title, ...table.map((row) => `  ${line(row).trimEnd()}`), ''];
}

function throughputRows({ edge }: Round, rounds: readonly Round[]): Row[] {
  const rows = edgeNames.flatMap((name): Row[] => {
    const run = edge[name];
    if (!run) return [];
    const { letter, what } = edgeCases[name];
    const each = rounds.map((round) => Math.round(round.edge[name]!.throughput.okPerSecond)).join(' ');
    const { okPerSecond, errors, cpuUs } = run.throughput;
    const swept = Math.round(run.server.sweptKeysPerSecond);
    return [[`(${letter}) ${name}: ${what}`, Math.round(okPerSecond), each, errors, ...cpuCells(cpuUs), swept]];
  });
  return [['', 'requests/s', 'rounds', 'errors', 'orders', 'postgres', 'load', 'keys swept/s'], ...rows];
}

function cpuCells({ orders, postgres, load }: CpuUs): number[] {
  return [orders, postgres, load].map(Math.round);
}

function latencyRows({ edge }: Round): Row[] {
  const rows = edgeNames.flatMap((name) =>
    Object.values(edge[name]?.latency ?? {}).map((latency) => {
      const { rate, p50Ms, p99Ms, p999Ms, okShare, latenessP99Ms, cpuUs, stolenShare } = latency;
      const times = [p50Ms, p99Ms, p999Ms, latenessP99Ms].map((ms) => ms.toFixed(1));
      return [name, Math.round(rate), ...times, percent(okShare), ...cpuCells(cpuUs), percent(stolenShare)];
    }),
  );
  const titles = [
    'at/s',
    'p50',
    'p99',
    'p99.9',
    'generator p99',
    'ok',
    'orders us',
    'postgres us',
    'load us',
    'stolen',
  ];
  return [['', ...titles], ...rows];
}

function percent(share: number): string {
  return `${(100 * share).toFixed(2)} %`;
}

function hotRows({ hot }: Round): Row[] {
  const rows = hotNames.flatMap((name) => {
    const run = hot[name];
    if (!run) return [];
    const { deadlocks, serializationFailures } = run.server;
    return (['hot', 'cold'] as const).map((which): Row => {
      const { count, p50Ms, p99Ms, p999Ms } = run[which];
      const times = [p50Ms, p99Ms, p999Ms].map((ms) => ms.toFixed(1));
      const whole = [percent(run.okShare), deadlocks, serializationFailures, run.differentAnswers];
      const label = `${hotCases[name].what}: ${which === 'hot' ? 'ten hottest' : 'others'}`;
      return [label, run.rate, count, ...times, ...(which === 'hot' ? whole : whole.map(() => ''))];
    });
  });
  return [['', 'at/s', 'requests', 'p50', 'p99', 'p99.9', 'ok', 'deadlocks', '40001', 'other answers'], ...rows];
}

function claimRows({ claims }: Round): Row[] {
  const head = ['', 'claims/s', 'p50 ms', 'p99 ms', 'postgres us', 'repeated'];
  if (!claims) return [head];
  const cells = ({ claimsPerSecond, p50Ms, p99Ms, cpuUs, repeatedShare }: ClaimRun): Row => [
    Math.round(claimsPerSecond),
    p50Ms.toFixed(2),
    p99Ms.toFixed(2),
    cpuUs.toFixed(0),
    `${Math.round(100 * repeatedShare)} %`,
  ];
  const { onConflict, advisoryLock } = claims;
  const times = (of: (run: ClaimRun) => number): string => `x ${(of(advisoryLock) / of(onConflict)).toFixed(2)}`;
  const ratios = [times((run) => run.claimsPerSecond), times((r) => r.p50Ms), times((r) => r.p99Ms)];
  const labels = { onConflict: 'INSERT ... ON CONFLICT', advisoryLock: 'advisory lock for each key' };
  return [
    head,
    ...claimWays.map((way): Row => [labels[way], ...cells(claims[way])]),
    ['the lock against the INSERT', ...ratios, times((run) => run.cpuUs), ''],
  ];
}

export function barRows(bars: readonly Bar[]): Row[] {
  const rows = bars.map(({ name, kind, value, target, pass, values }) => {
    const judged = pass ? 'pass' : kind === 'aim' ? 'not reached' : 'FAIL';
    return [name, kind, value, target, judged, values.join(' ')];
  });
  return [['', '', 'value', 'target', '', 'rounds'], ...rows];
}

/** On two cores it is 15 %: then the figures are partly somebody else's. */
const disturbingCores = 0.3;

export function disturbance(otherCores: readonly number[]): string[] {
  const most = Math.max(0, ...otherCores);
  return most < disturbingCores ? [] : [`NOTE: something else kept up to ${most} cores busy meanwhile.`];
}

/** What makes the figures worth less. */
function reservations(rounds: readonly Round[]): string[] {
  const shares = rounds.flatMap(({ edge, hot }) => [
    ...Object.values(edge).flatMap(({ throughput, latency }) => [throughput, ...Object.values(latency)]),
    ...Object.values(hot),
  ]);
  const isOverloaded = (name: EdgeName): boolean =>
    rounds.every(({ edge }) => !edge[name] || edge[name].throughput.okPerSecond < 0.9 * edge[name].throughput.offered);
  const judged = rounds.flatMap(({ edge }) => edge.group?.latency[`${promisedRate}`] ?? []);
  return [
    ...disturbance(shares.map(({ otherCores }) => otherCores)),
    ...repetitions('group commit at the bar', judged, { name: 'p99', of: ({ p99Ms }) => p99Ms }),
    ...edgeNames
      .filter((name) => !isOverloaded(name))
      .map((name) => `NOTE: ${name} could answer all that was offered.`),
  ];
}
