/** The status for people: a picture that stays in its place, or plain lines where nobody can look at one. */
import type { Status } from './status.ts';

/** Writes each over the one before. No line is wider than the terminal: it would take two, and the picture would wander. */
export function createScreen(write: (text: string) => void, columns: () => number): (status: Status) => void {
  let lines = 0;
  return (status) => {
    const text = picture(status)
      .split('\n')
      .map((line) => line.slice(0, columns()))
      .join('\n');
    write(`${lines > 0 ? `\x1b[${lines}A\x1b[J` : ''}${text}\n`);
    lines = text.split('\n').length;
  };
}

export function picture(status: Status): string {
  const { processes, rates, lag, held, p99Ms } = status;
  const row = (name: string, value: string): string => `  ${name.padEnd(12)}${value}`;
  return [
    '',
    row('process', `${'pid'.padStart(8)}  restarts`),
    ...processes.map(({ name, pid, state, restarts }) =>
      row(
        name,
        `${String(pid || '-').padStart(8)}${String(restarts).padStart(10)}${state === 'running' ? '' : `  ${state}`}`,
      ),
    ),
    '',
    row(
      'a second',
      `${rates.requests} requests: ${rates.orders} new, ${rates.replays} replayed; ${rates.published} published, ${rates.charges} charges, ${rates.duplicates} duplicates skipped`,
    ),
    row(
      'p99',
      `request ${ms(p99Ms.request)}, append to broker ${ms(p99Ms.appendToBroker)}, commit to effect ${ms(p99Ms.commitToEffect)}`,
    ),
    row(
      'lag',
      `${lag.messages ?? '?'} messages unpublished, the oldest for ${lag.oldestS ?? '?'} s; ${held ?? '?'} held`,
    ),
    row('invariant', invariantLine(status.invariant)),
    ...(status.invariant ? [row('', ageOf(status))] : []),
    '',
    '  kill -9 any of these, from another terminal, and see. Ctrl-C stops.',
  ].join('\n');
}

export function plainLine(status: Status): string {
  const { upS, processes, rates, lag, p99Ms } = status;
  const restarts = processes.reduce((sum, each) => sum + each.restarts, 0);
  const away = processes.filter(({ state }) => state !== 'running').map(({ name }) => name);
  return [
    `${upS} s`,
    `${rates.requests} requests/s (${rates.replays} replayed)`,
    `${rates.charges} charges/s`,
    `lag ${lag.messages ?? '?'}`,
    `p99 ${ms(p99Ms.request)} / ${ms(p99Ms.appendToBroker)} / ${ms(p99Ms.commitToEffect)}`,
    `${restarts} restarts${away.length > 0 ? `, away: ${away.join(' ')}` : ''}`,
    invariantLine(status.invariant),
    ...(status.invariant ? [ageOf(status)] : []),
  ].join('; ');
}

function invariantLine(invariant: Status['invariant']): string {
  if (!invariant) return 'not yet judged';
  const { verdict, intents, orders, others, charges, doubled, lost, reasons } = invariant;
  const ofOthers = others > 0 ? ` (and ${others} of others)` : '';
  const counts = `${intents} intents, ${orders} orders${ofOthers}, ${charges} charges, ${doubled ?? '?'} doubled, ${lost ?? '?'} lost`;
  const why = verdict === 'clean' ? '' : ` (${reasons.join('; ').slice(0, 200)})`;
  return `${verdict}: ${counts}${why}`;
}

/** What was killed after that is not in it yet. */
function ageOf({ at, invariant }: Status): string {
  const { checkedAt } = invariant!;
  const agoS = Math.max(0, Math.round((Date.parse(at) - Date.parse(checkedAt)) / 1_000));
  return `read ${agoS} s ago, at ${checkedAt.slice(11, 19)} UTC`;
}

function ms(value: number | undefined): string {
  return value === undefined ? '-' : `${value} ms`;
}
