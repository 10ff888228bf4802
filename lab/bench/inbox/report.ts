/** The result of the inbox's bench for people. */
import { barRows, disturbance, section, type Row } from '../report.ts';
import { repetitions } from '../undisturbed.ts';
import { ways } from './cases.ts';
import type { ConsumeRun } from './consume.ts';
import type { Beside, Forgetting } from './expiry.ts';
import type { InboxRound } from './inbox.ts';
import type { InboxResult } from './result.ts';

export function inboxReport(result: InboxResult): string {
  const { bars, median, rounds, environment, commit, seed, scale } = result;
  const { cores, cpu, node, postgres, kafka, loadAverage } = environment;
  const { smallDay, largeDay } = scale.expiry;
  const days = `${smallDay.toLocaleString('en')} and ${largeDay.toLocaleString('en')} keys`;
  return [
    ...section('from a topic to committed charges: messages/s, and CPU us for each', consumeRows(median, rounds)),
    ...section('500 new keys in one statement: us; and bytes for each key', keysRows(median, rounds)),
    ...section(`the end of a day of ${days}`, expiryRows(median)),
    ...section('1,000 messages/s while a day goes: ms', besideRows(median)),
    ...section('from the commit of an order to that of its charge: ms, and CPU us for each', latencyRows(median)),
    ...section('bars', barRows(bars)),
    `medians of ${rounds.length}; seed ${seed}; commit ${commit}`,
    `${cores} cores of ${cpu}, Node ${node}, Postgres ${postgres}${kafka === undefined ? '' : `, Kafka ${kafka}`}, load average before ${loadAverage}`,
    ...disturbance(rounds.flatMap(otherCores)),
    ...repetitions(
      'orders on their way to a charge',
      rounds.flatMap(({ latency }) => latency ?? []),
      { name: 'p99 at 1000 orders/s', of: ({ rates }) => rates['1000']!.p99Ms },
    ),
  ].join('\n');
}

type Of = (round: InboxRound) => ConsumeRun | undefined;

const labels = {
  textbook: 'textbook: a transaction for each',
  each: 'batched, a handler for each',
  set: 'batched, a handler for sets',
};

/** In the order of the ceilings, the percentages, the ways. */
export function consumeLabels({ consume }: InboxRound): [label: string, of: Of][] {
  if (!consume) return [];
  const percents = [0, 5, 30, 100].map(String);
  const runs = percents.flatMap((percent) =>
    ways
      .filter((way) => consume.ways[way]?.[percent])
      .map((way): [string, Of] => [
        `${labels[way]}, ${percent} % again`,
        (round) => round.consume?.ways[way]?.[percent],
      ]),
  );
  return [
    ['ceiling: consume and discard', (round) => round.consume?.discard],
    ['ceiling: INSERTs of 500, no Kafka', (round) => round.consume?.raw],
    ...runs,
  ];
}

function consumeRows(median: InboxRound, rounds: readonly InboxRound[]): Row[] {
  const rows = consumeLabels(median).map(([label, of]): Row => {
    const { perSecond, cpuUs, wrongCharges } = of(median)!;
    const each = rounds.map((round) => Math.round(of(round)?.perSecond ?? 0)).join(' ');
    const cpu = [cpuUs.node, cpuUs.postgres, cpuUs.brokers].map((us) => us.toFixed(1));
    return [label, Math.round(perSecond), each, ...cpu, wrongCharges];
  });
  return [['', 'messages/s', 'rounds', 'node us', 'postgres us', 'brokers us', 'wrong charges'], ...rows];
}

export function storeLabel(name: string): string {
  const [kind, keys] = name.split('-');
  const what = { partitioned: 'partitions', plain: 'one table', random: 'one table, UUIDv4' }[kind ?? ''];
  return `${Number(keys) / 1e6} M keys, ${what}`;
}

function keysRows({ keys = {} }: InboxRound, rounds: readonly InboxRound[]): Row[] {
  const rows = Object.entries(keys).map(([name, run]): Row => {
    const each = rounds.map((round) => round.keys?.[name]?.insertP99Us).join(' ');
    const times = [run.insertP50Us, run.insertP99Us].map(Math.round);
    const bytes = [run.walBytes, run.heapBytes, run.indexBytes];
    return [storeLabel(name), ...times, each, Math.round(run.transactionP99Us), ...bytes];
  });
  return [['', 'p50', 'p99', 'rounds', 'p99 with COMMIT', 'WAL', 'heap', 'index'], ...rows];
}

function expiryRows({ expiry }: InboxRound): Row[] {
  const head = ['', 'out of the inbox ms', 'files gone ms', 'WAL bytes', 'by DELETE ms', 'WAL bytes'];
  if (!expiry) return [head];
  const row = (label: string, run: Forgetting): Row => [
    label,
    run.detachMs,
    run.expiryMs,
    Math.round(run.expiryWalBytes),
    run.deleteMs,
    Math.round(run.deleteWalBytes),
  ];
  return [head, row('small', expiry.small), row('large', expiry.large)];
}

function besideRows({ expiry }: InboxRound): Row[] {
  const head = [
    '',
    'expiry',
    'passes',
    'longest accept',
    'before',
    'lock waits',
    'accepts',
    'done again',
    'messages/s',
  ];
  if (!expiry) return [head];
  const row = (label: string, run: Beside): Row => [
    label,
    run.expiryMs,
    run.passes,
    run.longestAcceptMs,
    run.longestBeforeMs,
    run.lockWaits,
    run.accepts,
    run.refused,
    Math.round(run.messagesPerSecond),
  ];
  return [head, row('alone', expiry.loaded), row('beside an open transaction', expiry.open)];
}

function latencyRows({ latency }: InboxRound): Row[] {
  const rows = Object.entries(latency?.rates ?? {}).map(([rate, run]): Row => {
    const { p50Ms, p99Ms, relayP50Ms, relayP99Ms, batchP50Ms, cpuUs } = run;
    const cpu = [cpuUs.payments, cpuUs.relay, cpuUs.postgres, cpuUs.brokers].map((us) => us.toFixed(0));
    const ms = [p50Ms, p99Ms, relayP50Ms, relayP99Ms, batchP50Ms].map((value) => value.toFixed(1));
    return [`${rate} orders/s`, ...ms, ...cpu];
  });
  const cpu = ['payments us', 'relay us', 'postgres us', 'brokers us'];
  return [['', 'p50', 'p99', 'to broker p50', 'to broker p99', 'batch p50', ...cpu], ...rows];
}

function otherCores({ consume, latency }: InboxRound): number[] {
  const runs: ConsumeRun[] = Object.values(consume?.ways ?? {}).flatMap((byPercent) => Object.values(byPercent));
  return [...runs, ...(consume ? [consume.discard] : []), ...(latency ? [latency] : [])].map((run) => run.otherCores);
}
