/** What ran, how many, how long each room took, and what was not run and why. */
import type { FileResult } from './test-run.ts';

export interface Step {
  name: string;
  passed: boolean;
  ms: number;
}

interface Ran {
  results: readonly FileResult[];
  steps: readonly Step[];
  /** Test files that were not chosen. */
  notRun: readonly string[];
  deep: boolean;
}

export function summary({ results, steps, notRun, deep }: Ran): {
  text: string;
  data: { ok: boolean; [key: string]: unknown };
} {
  const rooms = new Map<string, { files: number; passed: number; failed: number; ms: number }>();
  for (const { file, passed, failures, ms } of results) {
    const name = roomOf(file);
    const room = rooms.get(name) ?? { files: 0, passed: 0, failed: 0, ms: 0 };
    rooms.set(name, {
      files: room.files + 1,
      passed: room.passed + passed,
      failed: room.failed + failures.length,
      ms: room.ms + ms,
    });
  }
  const passed = results.reduce((sum, result) => sum + result.passed, 0);
  const failed = results.reduce((sum, result) => sum + result.failures.length, 0);
  const unrun = results.flatMap((result) =>
    result.notRun.map(({ name, why }) => `${result.file}: ${name.includes(why) ? name : `${name}: ${why}`}`),
  );
  const brokenSteps = steps.filter((step) => !step.passed);

  const lines = ['', 'What ran:'];
  for (const { name, passed: ok, ms } of steps) lines.push(row(name, ok ? 'passed' : 'FAILED', ms));
  for (const [name, room] of rooms) {
    const failures = room.failed > 0 ? `, ${room.failed} FAILED` : '';
    lines.push(row(name, `${room.passed} tests in ${files(room.files)}${failures}`, room.ms));
  }
  lines.push('Not run:');
  for (const line of unrun) lines.push(`  ${line}`);
  const otherTier = notRun.filter((file) => file.endsWith('.deep.test.ts') !== deep);
  const sameTier = notRun.length - otherTier.length;
  if (otherTier.length > 0 || !deep) {
    const command = deep ? 'npm test' : 'npm run test:deep';
    const plants = deep ? '' : ' and the planted bugs';
    lines.push(`  ${files(otherTier.length)} of the other tier${plants}: \`${command}\` runs them`);
  }
  if (sameTier > 0) lines.push(`  ${files(sameTier)} not asked for`);
  if (brokenSteps.length > 0) lines.push('', `FAILED: ${brokenSteps.map(({ name }) => name).join(', ')}`);
  for (const { file, failures } of results) if (failures.length > 0) lines.push(`FAILED: ${file}`);
  lines.push('', `${passed + steps.length - brokenSteps.length} passed, ${failed + brokenSteps.length} failed`);
  const ok = failed === 0 && brokenSteps.length === 0;
  return {
    text: lines.join('\n'),
    data: { ok, passed, failed, rooms: Object.fromEntries(rooms), steps, notRun: unrun },
  };
}

/** `packages/twiceproof/src/transports/x.test.ts` belongs to `transports`, `infra/x.test.ts` to `infra`. */
export function roomOf(file: string): string {
  const parts = file.replace(/^packages\/twiceproof\/src\//, '').split('/');
  if (file.startsWith('packages/twiceproof')) return parts.length > 1 ? `twiceproof/${parts[0]}` : 'twiceproof';
  return parts.slice(0, ['packages', 'apps', 'lab', 'examples'].includes(parts[0] ?? '') ? 2 : 1).join('/');
}

function files(count: number): string {
  return count === 1 ? '1 file' : `${count} files`;
}

function row(name: string, what: string, ms: number): string {
  return `  ${name.padEnd(28)} ${what.padEnd(28)} ${(ms / 1000).toFixed(1)} s`;
}
