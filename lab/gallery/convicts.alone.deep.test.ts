import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

// From the chaos to the verdict, in no way but by what is in tables and on the topic. All of them: `npm run gallery`.
for (const [recipe, delta] of [
  ['key-looked-up', 'doubled'],
  ['nothing-remembered', 'doubled'],
] as const) {
  test(`chaos and reconciler convict ${recipe}`, (t) => {
    const out = mkdtempSync(join(tmpdir(), 'twiceproof-gallery-'));
    t.after(() => rmSync(out, { recursive: true, force: true }));
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      ['--conditions=twiceproof-source', join(import.meta.dirname, 'main.ts'), recipe, `--out=${out}`, '--json'],
      { encoding: 'utf8' },
    );
    assert.equal(status, 0, `${stdout}\n${stderr}`);
    const lines = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { judged?: Judged });
    const { judged } = lines.find((line) => line.judged)!;
    assert.equal(judged?.verdict, 'violated');
    assert.ok(judged.deltas[delta]! > 0, JSON.stringify(judged));
  });
}

interface Judged {
  verdict: string;
  deltas: Record<string, number>;
}
