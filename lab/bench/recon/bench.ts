/** `npm run bench -- recon`: how long the reconciler takes for a run of so many orders, and what it costs. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { EXIT, type Output } from '@twiceproof/program';
import { startProgram } from '../children.ts';
import { cpuOf, readCpu, stolenShare } from '../cpu.ts';
import { rounded } from '../measure.ts';
import { startWorld } from '../relay/world.ts';
import { begin, jsonText, outcomeOf, type Outcome } from '../result.ts';
import { serverSettings } from '../server.ts';
import { makeSample } from './sample.ts';

export interface ReconBenchCall {
  /** That repeats it. */
  command: string;
  orders: number;
  seed: number;
  /** Where the result goes; nowhere without one. */
  directory: string | undefined;
}

export interface ReconRun {
  verdict: string;
  counts: Record<string, number>;
  /** Of each step, as it says itself. */
  stepsMs: Record<string, number>;
  tookMs: number;
  ordersPerSecond: number;
  /** For each order: of the program, of Postgres with all its children, of the brokers. */
  cpuUs: { recon: number; postgres: number; brokers: number };
  /** Of the program, at its largest. */
  memoryMB: number;
  stolenShare: number;
}

export type ReconResult = Omit<Outcome, 'bars'> & { orders: number; run: ReconRun; environment: object };

const lookEveryMs = 250;

/** Answers the exit code. */
export async function benchRecon(call: ReconBenchCall, output: Output, signal: AbortSignal): Promise<number> {
  const { orders, directory } = call;
  const began = begin();
  const measured = await measure(call, output.progress, signal).catch((error: unknown) => {
    if (!signal.aborted) throw error;
    return undefined;
  });
  if (!measured) {
    output.progress('bench: interrupted; nothing is written');
    return EXIT.failed;
  }
  const { run, versions } = measured;
  const { bars: _, ...outcome } = outcomeOf(began, call, []);
  const environment = { ...began.environment, ...versions, postgresSettings: serverSettings };
  const pass = run.verdict === 'clean' && run.counts['orders'] === orders;
  const result: ReconResult = { ...outcome, pass, environment, orders, run };
  if (directory !== undefined) {
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, 'result.json'), `${jsonText(result)}\n`);
  }
  output.emit({ result });
  output.say(textOf(result));
  if (directory !== undefined) output.say(`written to ${directory}`);
  return pass ? EXIT.ok : EXIT.failed;
}

async function measure(
  { orders, seed }: ReconBenchCall,
  progress: (text: string) => void,
  signal: AbortSignal,
): Promise<{ run: ReconRun; versions: { postgres: string; kafka: string } }> {
  await using made = new AsyncDisposableStack();
  const directory = mkdtempSync(join(tmpdir(), 'twiceproof-recon-'));
  made.defer(() => rmSync(directory, { recursive: true }));
  const world = await startWorld(seed, signal);
  made.defer(async () => world.close());
  const [own, payments] = [
    await world.database({ shape: 'ours', shards: 1 }, 0),
    await world.database({ shape: 'ours', shards: 1 }, 0),
  ];
  made.defer(async () => {
    await Promise.all([own.client.end(), payments.client.end()]);
  });
  const [topic, ledger] = [await world.topic(), join(directory, 'ledger.tsv')];
  const { postgres, kafka } = world;
  await makeSample({
    orders,
    databases: { orders: own, payments },
    brokers: kafka.bootstrap,
    topic,
    ledger,
    signal,
    progress,
  });
  await own.client.query('CHECKPOINT');
  signal.throwIfAborted();

  let report: Pick<ReconRun, 'verdict' | 'counts' | 'stepsMs' | 'tookMs'> | undefined;
  const watched = {
    postgres: { pids: [postgres.pid], withChildren: true as const },
    brokers: { pids: kafka.brokers.map(({ pid }) => pid) },
  };
  const before = readCpu(watched);
  const child = startProgram(
    'lab/recon/main.ts',
    [
      `--ledger=${ledger}`,
      `--database-url=${own.url}`,
      `--payments-url=${payments.url}`,
      `--brokers=${kafka.bootstrap}`,
      `--topics=${topic}`,
    ],
    {
      onLine: (line) => {
        if ('verdict' in line) report = line as unknown as typeof report;
      },
    },
  );
  made.defer(async () => child.stop());
  const stop = (): void => {
    child.stop().catch(() => {});
  };
  signal.addEventListener('abort', stop);
  progress('bench: judging');
  let last = { us: 0, peakKB: 0 };
  let isOver = false;
  const ended = child.ended.finally(() => {
    isOver = true;
  });
  while (!isOver) {
    last = lookAt(child.pid) ?? last;
    await Promise.race([ended, delay(lookEveryMs)]);
  }
  const after = readCpu(watched);
  signal.removeEventListener('abort', stop);
  signal.throwIfAborted();
  if (!report) throw new Error(`recon ended with ${await ended}: ${child.said()}`);
  const { verdict, counts, stepsMs, tookMs } = report;
  const each = (us: number): number => rounded(us / orders, 1);
  return {
    run: {
      verdict,
      counts,
      stepsMs,
      tookMs,
      ordersPerSecond: Math.round(orders / (tookMs / 1_000)),
      cpuUs: {
        recon: each(last.us),
        postgres: each(after.us.postgres - before.us.postgres),
        brokers: each(after.us.brokers - before.us.brokers),
      },
      memoryMB: Math.round(last.peakKB / 1_024),
      stolenShare: rounded(stolenShare(before, after), 5),
    },
    versions: { postgres: postgres.version, kafka: kafka.version },
  };
}

/** Of a process that is still there. */
function lookAt(pid: number): { us: number; peakKB: number } | undefined {
  try {
    const [, peak] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
    return peak === undefined ? undefined : { us: cpuOf(pid), peakKB: Number(peak) };
  } catch {
    return undefined;
  }
}

function textOf({ orders, run, pass }: ReconResult): string {
  const { verdict, tookMs, stepsMs, ordersPerSecond, cpuUs, memoryMB, counts } = run;
  const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;
  const longest = Object.entries(stepsMs).toSorted(([, a], [, b]) => b - a);
  return [
    '',
    `${orders.toLocaleString('en')} orders, ${counts['requests']?.toLocaleString('en') ?? '?'} requests: ${verdict} in ${seconds(tookMs)}, ${ordersPerSecond.toLocaleString('en')} orders/s`,
    `CPU for each order: recon ${cpuUs.recon} us, Postgres ${cpuUs.postgres} us, brokers ${cpuUs.brokers} us; recon held ${memoryMB} MB at most`,
    ...longest.map(([step, ms]) => `  ${step.padEnd(36)}${seconds(ms).padStart(10)}`),
    pass ? 'ok' : 'FAILED: everything in it is as it should be, and the reconciler does not say so',
  ].join('\n');
}
