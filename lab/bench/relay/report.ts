/** The result of the relay's bench for people. */
import { barRows, disturbance, section, type Row } from '../report.ts';
import { repetitions } from '../undisturbed.ts';
import type { DrainRun } from './drain.ts';
import { listeners } from './programs.ts';
import type { RelayRound } from './relay.ts';
import type { RelayResult } from './result.ts';
import { shapes } from './rows.ts';
import { burstFactors, flatness, steadyRates } from './steady.ts';

export function relayReport(result: RelayResult): string {
  const { bars, median, rounds, environment, commit, seed, scale } = result;
  const { cores, cpu, node, postgres, kafka, loadAverage } = environment;
  return [
    ...section('publishing a backlog: rows/s, and CPU us, WAL bytes for each message', drainRows(median, rounds)),
    ...section('beside writers: from the commit, ms', latencyRows(median)),
    ...section('lag: flat, and after bursts of multiples of what it drains', lagRows(median)),
    ...section(`a transaction that stays open for ${scale.heldS} s`, heldRows(result)),
    ...section('bars', barRows(bars)),
    `flat: the oldest row is not older than ${flatness.ageMs} ms; after a burst, when that has held for ${flatness.holdMs} ms`,
    `medians of ${rounds.length}; ${scale.rows.toLocaleString('en')} rows; seed ${seed}; commit ${commit}`,
    `${cores} cores of ${cpu}, Node ${node}, Postgres ${postgres}, Kafka ${kafka}, load average before ${loadAverage}`,
    ...disturbance(rounds.flatMap(otherCores)),
    ...slowBursts(rounds),
    ...repetitions(
      'the relay beside writers',
      rounds.flatMap(({ steady }) => steady ?? []),
      {
        name: `p99 at ${steadyRates.latency} rows/s`,
        of: ({ latency }) => latency[steadyRates.latency]!.appendedP99Ms,
      },
    ),
  ].join('\n');
}

export const drainLabels = (round: RelayRound): [label: string, of: (round: RelayRound) => DrainRun | undefined][] =>
  [
    ...Object.keys(round.ceiling).map(
      (batch) => [`ceiling: from memory, batches of ${batch}`, (r: RelayRound) => r.ceiling[batch]] as const,
    ),
    ...Object.keys(round.drain).map((key) => {
      const [shards, batch] = key.split('x');
      const label = `relay: ${shards} ${shards === '1' ? 'shard' : 'shards'}, batches of ${batch}`;
      return [label, (r: RelayRound) => r.drain[key]] as const;
    }),
    ...Object.keys(round.textbook).map(
      (batch) => [`textbook relay, batches of ${batch}`, (r: RelayRound) => r.textbook[batch]] as const,
    ),
    ...listeners
      .filter((listener) => round.peer[listener])
      .map((listener) => [`pg-transactional-outbox, ${listener}`, (r: RelayRound) => r.peer[listener]] as const),
  ].map(([label, of]) => [label, of]);

function drainRows(median: RelayRound, rounds: readonly RelayRound[]): Row[] {
  const rows = drainLabels(median).map(([label, of]): Row => {
    const { perSecond, cpuUs, walBytes, deadTuples } = of(median)!;
    const each = rounds.map((round) => Math.round(of(round)!.perSecond)).join(' ');
    const cpu = [cpuUs.relay, cpuUs.postgres, cpuUs.brokers].map((us) => us.toFixed(1));
    return [label, Math.round(perSecond), each, ...cpu, walBytes.toFixed(0), Math.round(deadTuples)];
  });
  return [['', 'rows/s', 'rounds', 'relay us', 'postgres us', 'brokers us', 'WAL bytes', 'dead tuples'], ...rows];
}

function latencyRows({ steady }: RelayRound): Row[] {
  const rows = Object.entries(steady?.latency ?? {}).flatMap(([rate, latency]): Row[] => {
    const { p50Ms, p99Ms, maxMs, appendedP50Ms, appendedP99Ms, ownP50Ms, ownP99Ms, cpuUs } = latency;
    const cpu = [cpuUs.relay, cpuUs.postgres, cpuUs.brokers].map((us) => us.toFixed(0));
    const nothing = cpu.map(() => '');
    const ms = (...values: number[]): string[] => values.map((value) => value.toFixed(1));
    return [
      [`${rate} rows/s, to a consumer`, ...ms(p50Ms, p99Ms, maxMs), ...cpu],
      [`${rate} rows/s, to the leader's log`, ...ms(appendedP50Ms, appendedP99Ms), '', ...nothing],
      [`${rate} rows/s, as the relay says`, ...ms(ownP50Ms, ownP99Ms), '', ...nothing],
    ];
  });
  return [['', 'p50', 'p99', 'max', 'relay us', 'postgres us', 'brokers us'], ...rows];
}

function lagRows({ steady }: RelayRound): Row[] {
  const head = ['', 'written/s', 'highest rows', 'highest age ms', 'growth rows/s', 'flat after s'];
  if (!steady) return [head];
  const { flat, bursts } = steady;
  return [
    head,
    ['steady', steadyRates.flat, flat.highestRows, flat.highestAgeMs, flat.growthPerSecond, ''],
    ...Object.entries(bursts).map(([factor, { wantedPerSecond, writtenPerSecond, ...burst }]): Row => {
      const label = `burst of ${factor} times the limit (${Math.round(wantedPerSecond)}/s)`;
      return [label, Math.round(writtenPerSecond), burst.highestRows, burst.highestAgeMs, '', burst.flatAfterS];
    }),
  ];
}

/** Of what a burst asks for, so much must have been written for it to be called by its name. */
const burstShare = 0.9;

/** Writers share the machine with the relay, and cannot always write as fast as a burst asks for: it was a smaller one. */
function slowBursts(rounds: readonly RelayRound[]): string[] {
  return burstFactors.flatMap((factor) => {
    const bursts = rounds.flatMap(({ steady }) => steady?.bursts[factor] ?? []);
    const shares = bursts.map(({ writtenPerSecond, wantedPerSecond }) => writtenPerSecond / wantedPerSecond);
    if (shares.every((share) => share >= burstShare)) return [];
    const reached = shares.map((share) => (factor * share).toFixed(2)).join(' ');
    return [
      `NOTE: the burst of ${factor} times the limit was written at ${reached} times: its writer could do no more.`,
    ];
  });
}

function heldRows({ held }: RelayResult): Row[] {
  const head = ['', 'written/s', 'first us', 'last us', 'published/s at last', 'lag rows', 'dead tuples'];
  const rows = shapes.flatMap((shape): Row[] => {
    const run = held[shape];
    if (!run) return [];
    const label = { ours: 'relay', textbook: 'textbook relay', peer: 'pg-transactional-outbox, polling' }[shape];
    return [
      [label, run.perSecond, run.firstUs, run.lastUs, Math.round(run.lastPerSecond), run.lagRows, run.deadTuples],
    ];
  });
  return [head, ...rows];
}

function otherCores({ ceiling, drain, textbook, peer, steady }: RelayRound): number[] {
  const runs = [
    ...Object.values(ceiling),
    ...Object.values(drain),
    ...Object.values(textbook),
    ...Object.values(peer),
    steady,
  ];
  return runs.flatMap((run) => (run ? [run.otherCores] : []));
}
