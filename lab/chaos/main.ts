/** `npm run chaos`: the whole system under load, while everything that can break is broken, and the judge's verdict. */
import { randomInt } from 'node:crypto';
import { readFileSync, rmSync } from 'node:fs';
import { join, relative } from 'node:path';
import { checkout } from '@twiceproof/infra/directories';
import { EXIT, main, Refusal, type Context, type FlagSpecs, type Output } from '@twiceproof/program';
import { createAdminServer, listenAdmin } from '@twiceproof/program/admin';
import { createMetrics } from '@twiceproof/program/metrics';
import { commandOf } from './command.ts';
import type { Fault, Outcome } from './system/fault.ts';
import { newDirectory } from './system/directory.ts';
import { textOf, type Report } from './system/report.ts';
import { findFewer } from './system/find-fewer.ts';
import { drawSchedule, effectOrders, shotSchedule, type Schedule } from './system/schedule.ts';
import { besiege, phases, type Phase } from './system/siege.ts';

const flags = {
  quick: { type: 'boolean', help: '90 s of faults, each kind at least once, at least 20,000 orders' },
  soak: { type: 'string', help: 'for so long, such as 2h or 45m; otherwise 10 minutes' },
  seed: { type: 'integer', min: 0, max: 4_294_967_295, help: 'otherwise a random one, which is printed' },
  rate: { type: 'integer', min: 10, max: 20_000, default: 500, help: 'requests/s, retries included' },
  replay: { type: 'string', help: 'a schedule.json that a run has left: its faults again, at the same positions' },
  'crash-point': {
    type: 'choice',
    choices: ['commit', 'publish', 'effect'],
    help: 'one headline shot, and nothing else: between commit and publish, publish and cursor, inbox and effect',
  },
  'effect-order': {
    type: 'choice',
    choices: effectOrders,
    help: 'of --crash-point=effect: which payments writes first; the inbox is what the library does',
  },
  'dup-rate': {
    type: 'number',
    default: 0.05,
    min: 0,
    max: 1,
    help: 'the share of messages that are delivered again',
  },
  'unique-charge': { type: 'boolean', help: 'with the constraint that would hide a broken inbox' },
  pooler: { type: 'boolean', help: 'with PgBouncer (Debian) in transaction mode before the databases' },
  'no-shrink': { type: 'boolean', help: 'do not look for fewer faults that break it as well' },
  out: { type: 'string', help: 'a new directory for what the run leaves; otherwise one in .twiceproof' },
  'admin-port': { type: 'integer', default: 0, min: 0, max: 65_535, help: '/metrics; 0 for a free one' },
} as const satisfies FlagSpecs;

type Given = Context<typeof flags>['flags'];

const quick = { seconds: 90, minOrders: 20_000 };
const shot = { seconds: 30, minOrders: 5_000 };
const normalS = 600;
/** Of runs that look for fewer faults. */
const maxShrinkRuns = 8;

await main({
  name: 'chaos',
  summary: 'Breaks everything that can break, under load, and has the reconciler judge what is left.',
  flags,
  problems: (given) => {
    const lengths = (['quick', 'soak', 'replay', 'crash-point'] as const).filter((name) => given[name]);
    return [
      ...(lengths.length > 1 ? [`--${lengths.join(' and --')} exclude each other`] : []),
      ...(given.replay !== undefined && drawnBy(given).length > 0
        ? [`--replay has a schedule of its own: it goes without ${drawnBy(given).join(', ')}`]
        : []),
      ...(given['crash-point'] && drawnBy(given).includes('--dup-rate')
        ? ['--dup-rate is not of --crash-point, which has none but its own duplicates']
        : []),
      ...(given['effect-order'] && given['crash-point'] !== 'effect'
        ? ['--effect-order is of --crash-point=effect']
        : []),
      ...(given['effect-order'] === 'charge-first' && given['unique-charge']
        ? [
            '--effect-order=charge-first needs the table without its constraint, which would speak before the inbox does',
          ]
        : []),
      ...(given.soak !== undefined && secondsOf(given.soak) === undefined
        ? [`--soak is a time such as 2h, 45m or 300s, not '${given.soak}'`]
        : []),
    ];
  },
  run: chaos,
});

async function chaos({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  const schedule = given.replay === undefined ? scheduleOf(given) : readSchedule(given.replay);
  const out = newDirectory(given.out, schedule.seed);
  const watch = watchSiege();
  const admin = createAdminServer({ metrics: watch.metrics, ready: async () => {} });
  try {
    const address = await listenAdmin(admin, given['admin-port']);
    output.ready({ seed: schedule.seed, out, admin: address, pid: process.pid });
    output.progress(
      `chaos: seed ${schedule.seed}, ${schedule.faults.length} faults in ${schedule.seconds} s; ${address}/metrics`,
    );
    const options = { command: commandOf(flags, given, schedule.seed), signal, progress: output.progress, ...watch };
    const report = await besiege({ ...options, schedule, out });
    output.say(textOf(report));
    tell(report, { given, out, output });
    if (report.verdict === 'violated' && !given['no-shrink'])
      await findFewer({ ...options, schedule, out }, maxShrinkRuns);
    return report.ok ? EXIT.ok : EXIT.failed;
  } catch (error) {
    if (!signal.aborted) throw error;
    output.progress('stopped; nothing is left running.');
    return EXIT.failed;
  } finally {
    admin.close();
    admin.closeAllConnections();
  }
}

function scheduleOf(given: Given): Schedule {
  const { rate, 'unique-charge': uniqueCharge, 'crash-point': crashPoint } = given;
  const base = {
    seed: given.seed ?? randomInt(2 ** 32),
    rate,
    dupRate: given['dup-rate'],
    uniqueCharge,
    ...(given.pooler && { pooled: true }),
  };
  if (crashPoint) return shotSchedule(crashPoint, { ...base, ...shot, effectOrder: given['effect-order'] });
  if (given.quick) return drawSchedule({ ...base, ...quick });
  const seconds = given.soak === undefined ? normalS : secondsOf(given.soak)!;
  // A door that nobody gets an answer from any more would cost half of them; who asks for much may get less.
  return drawSchedule({ ...base, seconds, minOrders: Math.round(0.3 * Math.min(rate, flags.rate.default) * seconds) });
}

/** Flags that a schedule is drawn by, where they are given. */
function drawnBy(given: Partial<Given>): string[] {
  return [
    ...(given.seed === undefined ? [] : ['--seed']),
    ...((given.rate ?? flags.rate.default) === flags.rate.default ? [] : ['--rate']),
    ...((given['dup-rate'] ?? flags['dup-rate'].default) === flags['dup-rate'].default ? [] : ['--dup-rate']),
    ...(given['unique-charge'] ? ['--unique-charge'] : []),
    ...(given.pooler ? ['--pooler'] : []),
  ];
}

function secondsOf(text: string): number | undefined {
  const [, count, unit] = /^(\d{1,6})(s|m|h)$/.exec(text) ?? [];
  if (count === undefined) return undefined;
  const seconds = Number(count) * { s: 1, m: 60, h: 3_600 }[unit as 's' | 'm' | 'h'];
  return seconds >= 30 && seconds <= 86_000 ? seconds : undefined;
}

function readSchedule(file: string): Schedule {
  try {
    const schedule = JSON.parse(readFileSync(file, 'utf8')) as Schedule;
    if (schedule.version !== 1) throw new Error(`version ${String(schedule.version)} is not known`);
    return schedule;
  } catch (cause) {
    const why = (cause as NodeJS.ErrnoException).code === 'ENOENT' ? 'there is no such file' : String(cause);
    throw new Refusal(`--replay=${file} is no schedule: ${why}.`, 'Name a schedule.json of a run.', EXIT.usage, {
      cause,
    });
  }
}

function tell(report: Report, { given, out, output }: { given: Given; out: string; output: Output }): void {
  // The ledger is large, and evidence only of a run that failed.
  if (report.ok && given.out === undefined) rmSync(join(out, 'ledger.tsv'), { force: true });
  output.emit({ report, out });
  const schedule = relative(checkout, join(out, 'schedule.json'));
  output.say(`again: npm run chaos -- --replay ${schedule}`);
  if (!report.ok) output.say(`kept:  ${relative(checkout, out)} (logs, ledger, tables)`);
}

/** For /metrics: where it is and what has struck. */
function watchSiege() {
  const metrics = createMetrics();
  const faults = metrics.counter('chaos_faults_total', 'Faults by kind, and whether they had an effect.', [
    'kind',
    'result',
  ]);
  let phase: Phase = 'boot';
  metrics.gauge('chaos_phase', `Where the run is: ${phases.join(', ')}, from 0.`, () => phases.indexOf(phase));
  return {
    metrics,
    onPhase: (now: Phase) => {
      phase = now;
    },
    onFault: ({ kind }: Fault, { result }: Outcome) => faults(kind, result),
  };
}
