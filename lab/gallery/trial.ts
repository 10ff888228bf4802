/** One recipe in the place of our own program, under the chaos that ours is under, and what the judge says of it. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { drawSchedule } from '../chaos/system/schedule.ts';
import { besiege } from '../chaos/system/siege.ts';
import type { Entry } from './entries.ts';
import { examine, type Examined, type FirstWrong } from './examine.ts';

export interface Judged {
  name: string;
  room: Entry['room'];
  expects: Entry['expects'];
  verdict: 'clean' | 'violated' | 'undecided';
  /** Whether that is what was expected. */
  ok: boolean;
  /** Those that are not zero. */
  deltas: Record<string, number>;
  orders: number;
  first: FirstWrong | undefined;
  /** What struck, and how often. */
  faults: Record<string, number>;
  tookS: number;
  reasons: string[];
}

const seconds = 40;
/** Ours has to show that everything struck it, and in 40 s each kind of fault comes once, which may miss. */
const secondsOfOurs = 90;
const rate = 200;
/** What is only slow is not lost: it is waited for as long as anything moves, and longer than a group's session lasts. */
const patience = { settleS: 15, drainMs: 45_000, stalledMs: 20_000 };
/** A recipe at work brings the last orders through, but for a few; one that hangs loses whatever it is given. */
const atWork = 0.8;

export async function tryEntry(
  entry: Entry,
  { seed, out, signal, progress }: { seed: number; out: string; signal: AbortSignal; progress(text: string): void },
): Promise<Judged> {
  const { name, room, expects, shows, substitutes, points, outages, delivers = 1 } = entry;
  const began = performance.now();
  mkdirSync(out, { recursive: true });
  const config = join(out, 'recon-config.json');
  const missing = {
    ...(substitutes.payments && { inbox: null, held: null, states: null }),
    ...(substitutes.orders && { claims: null }),
  };
  writeFileSync(config, `${JSON.stringify(missing)}\n`);
  const isOurs = Object.keys(substitutes).length === 0;
  const schedule = drawSchedule({
    seed,
    seconds: isOurs ? secondsOfOurs : seconds,
    rate,
    uniqueCharge: false,
    minOrders: 0,
    aim: points,
    ...(outages && { outages }),
  });
  let examined: Examined | undefined;
  const report = await besiege({
    command: `npm run gallery -- ${name} --seed ${seed}`,
    schedule,
    accused: {
      substitutes,
      config,
      isExpectedToFail: expects === 'violated',
      examine: async (evidence) => {
        examined = await examine(evidence, Object.keys(substitutes));
      },
    },
    patience,
    out,
    signal,
    progress,
    onPhase: () => {},
    onFault: () => {},
  });
  rmSync(join(out, 'ledger.tsv'), { force: true });
  const counted = Object.entries(report.recon.deltas).filter(([, { count }]) => count > 0);
  const { lastOrders, first } = examined!;
  const stoodStill = hasStoodStill(lastOrders, delivers);
  // Whatever else is wrong with it may be the frame's fault.
  const hasShown = counted.some(([delta]) => delta === shows);
  const verdict = stoodStill ? 'undecided' : report.verdict;
  // A recipe has no counters of ours; and of each kind of fault there is one, which may miss.
  const unfinished = report.reasons.filter((reason) => isOurs || !reason.startsWith('vacuous'));
  return {
    name,
    room,
    expects,
    verdict,
    // Of what should be clean everything must have come to its end, too.
    ok: verdict === expects && (expects === 'violated' ? hasShown : unfinished.length === 0),
    deltas: Object.fromEntries(counted.map(([delta, { count }]) => [delta, count])),
    orders: report.recon.counts['orders'] ?? 0,
    first,
    faults: Object.fromEntries(
      Object.entries(report.faults).flatMap(([kind, { fired }]) => (fired > 0 ? [[kind, fired]] : [])),
    ),
    tookS: Math.round((performance.now() - began) / 1_000),
    reasons: [
      ...(expects === 'violated' && !hasShown ? [`there is no ${shows}, which is what this recipe brings about`] : []),
      ...new Set([...report.recon.reasons, ...unfinished]),
      ...(stoodStill
        ? [`of the last ${lastOrders.written} orders ${lastOrders.done} had an effect: it stood still`]
        : []),
    ],
  };
}

/** `delivers`: the share that has an effect while nothing goes wrong. A run without any order shows nothing either. */
export function hasStoodStill({ written, done }: Examined['lastOrders'], delivers: number): boolean {
  return written === 0 || done < written * delivers * atWork;
}
