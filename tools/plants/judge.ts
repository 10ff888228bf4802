import { namesTest } from './plant.ts';
import type { Plant } from './plant.ts';
import type { Line } from './reporter.ts';

export interface Verdict {
  ok: boolean;
  /** One sentence. */
  reason: string;
  /** What helps to see why, if it went wrong. */
  details: string;
}

interface Outcome {
  path: string[];
  failed: boolean;
  message: string;
}

/** The bug is noticed if the named tests, and no others, are red, in a run that came to its end. */
export function judge(plant: Plant, lines: readonly Line[]): Verdict {
  const stderr = lines.flatMap((line) => (line.type === 'stderr' ? [line.message] : [])).join('');
  const fault = (reason: string, details = ''): Verdict => ({ ok: false, reason, details: details || stderr });
  if (!lines.some(({ type }) => type === 'end')) {
    return fault('the test file crashed before its tests had ended: that proves nothing about the tests');
  }
  const outcomes = readOutcomes(lines);
  const red = outcomes.filter(({ failed }) => failed);
  if (red.length === 0) return fault(`nobody noticed: all ${outcomes.length} tests of ${plant.test} stay green`);

  const unnamed = red.filter(({ path }) => !plant.fails.some((entry) => namesTest(entry, path)));
  if (unnamed.length > 0) return fault('tests failed that the plant does not name', describe(unnamed));
  const silent = plant.fails.filter((entry) => !red.some(({ path }) => namesTest(entry, path)));
  if (silent.length > 0) return fault(`did not turn red: ${silent.join('; ')}`, describe(red));
  return { ok: true, reason: `noticed by ${red.length} of ${outcomes.length} tests`, details: '' };
}

/** Each test with the names of its suites. A suite that is red only because of what is in it does not count itself. */
function readOutcomes(lines: readonly Line[]): Outcome[] {
  const names: string[] = [];
  const outcomes: Outcome[] = [];
  for (const line of lines) {
    if (line.type === 'start') names.splice(line.nesting, Infinity, line.name);
    if (line.type !== 'pass' && line.type !== 'fail') continue;
    const path = [...names.slice(0, line.nesting), line.name];
    if (line.type === 'pass') outcomes.push({ path, failed: false, message: '' });
    else if (line.failure !== 'subtestsFailed') outcomes.push({ path, failed: true, message: line.message });
  }
  return outcomes;
}

function describe(outcomes: readonly Outcome[]): string {
  return outcomes.map(({ path, message }) => `red: ${path.join(' > ')}\n${message.replace(/^/gm, '    ')}`).join('\n');
}
