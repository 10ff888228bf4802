/** The result of the system's bench for people. */
import { barRows, disturbance, section, type Row } from '../report.ts';
import { repetitions } from '../undisturbed.ts';
import { promisedRate } from './cases.ts';
import type { SystemRun } from './measure.ts';
import type { SystemResult } from './result.ts';
import { total, type SystemRound } from './system.ts';

export function systemReport(result: SystemResult): string {
  const { bars, median, rounds, recon, highestRate, environment, commit, seed } = result;
  const { cores, cpu, node, postgres, kafka, loadAverage } = environment;
  const found = Object.entries(recon.deltas).map(([name, count]) => `${count} ${name}`);
  return [
    ...section('from the intended time to the answer, and from commit to effect: ms', timeRows(median)),
    ...section('cores kept busy', coreRows(median)),
    ...section('messages without an effect', lagRows(median)),
    ...section('bars', barRows(bars)),
    `the highest rate at which all bars hold: ${highestRate.holds} requests/s; at which nothing gathers: ${highestRate.keepsUp}`,
    `recon: ${recon.verdict}, ${found.join(', ') || 'nothing wrong'} of ${recon.counts['orders'] ?? 0} orders, in ${(recon.tookMs / 1_000).toFixed(0)} s`,
    ...recon.reasons,
    `medians of ${rounds.length}; seed ${seed}; commit ${commit}`,
    `${cores} cores of ${cpu}, Node ${node}, Postgres ${postgres}, Kafka ${kafka}, load average before ${loadAverage}`,
    ...disturbance(rounds.flatMap((round) => runsOf(round).map(({ otherCores }) => otherCores))),
    ...newLog(rounds.flatMap(runsOf)),
    ...repetitions(
      `requests at ${promisedRate} a second`,
      rounds.map(({ promised }) => promised),
      { name: 'p99', of: ({ p99Ms }) => p99Ms },
    ),
  ].join('\n');
}

/** From the lowest rate. */
export function runsOf({ promised, ladder }: SystemRound): SystemRun[] {
  return [promised, ...Object.values(ladder)].sort((a, b) => a.rate - b.rate);
}

const label = ({ rate }: SystemRun): string => `${rate} requests/s`;

function timeRows(median: SystemRound): Row[] {
  const rows = runsOf(median).map((run): Row => {
    const { p50Ms, p99Ms, p999Ms, effectP50Ms, effectP99Ms, relayP50Ms, relayP99Ms, latenessP99Ms } = run;
    const times = [p50Ms, p99Ms, p999Ms, latenessP99Ms, effectP50Ms, effectP99Ms, relayP50Ms, relayP99Ms];
    return [label(run), ...times.map((ms) => ms.toFixed(1)), `${(100 * run.okShare).toFixed(2)} %`];
  });
  const ofEffects = ['to effect p50', 'p99', 'to broker p50', 'p99'];
  return [['', 'p50', 'p99', 'p99.9', 'generator p99', ...ofEffects, 'ok'], ...rows];
}

function newLog(runs: readonly SystemRun[]): string[] {
  const worst = Math.max(...runs.map(({ newLogSegments }) => newLogSegments));
  return worst > 0
    ? [`NOTE: the database made up to ${worst} segments of its log within a run, and every commit waited for each`]
    : [];
}

function coreRows(median: SystemRound): Row[] {
  const names = Object.keys(median.promised.cores);
  const rows = runsOf(median).map((run): Row => {
    const shares = Object.values(run.cores).map((share) => share.toFixed(2));
    const stolen = `${(100 * run.stolenShare).toFixed(1)} %`;
    return [label(run), ...shares, total(run).toFixed(2), run.otherCores.toFixed(2), stolen];
  });
  return [['', ...names, 'in all', 'others', 'stolen'], ...rows];
}

function lagRows(median: SystemRound): Row[] {
  const rows = runsOf(median).map((run): Row => {
    return [label(run), run.lagGrowthPerSecond, run.highestLag, Math.round(run.highestLagMs), run.drainedAfterS];
  });
  return [['', 'growth/s', 'at most', 'age at most, ms', 'none after s'], ...rows];
}
