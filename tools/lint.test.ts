import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, test } from 'node:test';

const root = join(import.meta.dirname, '..');
const fixture = 'tools/fixtures/unawaited-sql.ts';

interface Mark {
  line: number;
  kind: 'caught' | 'fine' | 'missed';
  /** The rule that must fire, or why none does. */
  detail: string;
  source: string;
}

let marks: Mark[];
let rulesByLine: Map<number, Set<string>>;

before(() => {
  marks = readMarks(readFileSync(join(root, fixture), 'utf8'));
  rulesByLine = lintFixture();
});

test('the linter reports every planted statement that nobody waits for, by the rule that is meant to', () => {
  const silent = marks.filter(({ kind, line, detail }) => kind === 'caught' && !rulesByLine.get(line)?.has(detail));
  assert.deepEqual(silent, []);
});

test('the linter has nothing to say about the right forms', () => {
  const wronglyReported = marks.filter(({ kind, line }) => kind === 'fine' && rulesByLine.has(line));
  assert.deepEqual(wronglyReported, []);
});

test('the known gaps are still gaps: a linter that closes one should be written down as catching it', () => {
  const closed = marks.filter(({ kind, line }) => kind === 'missed' && rulesByLine.has(line));
  assert.deepEqual(closed, []);
});

test('the fixture holds enough shapes of each kind, and each gap says why', () => {
  const count = (kind: Mark['kind']) => marks.filter((mark) => mark.kind === kind).length;
  assert.ok(count('caught') >= 13, `only ${count('caught')} lines are marked as caught`);
  assert.ok(count('fine') >= 10, `only ${count('fine')} lines are marked as fine`);
  assert.deepEqual(
    marks.filter(({ kind, detail }) => kind !== 'fine' && detail === ''),
    [],
  );
});

function readMarks(text: string): Mark[] {
  return text.split('\n').flatMap((source, index) => {
    const found = /\S.* \/\/ (caught|fine|missed)(?:: (.+))?$/.exec(source);
    if (!found) return [];
    return [{ line: index + 1, kind: found[1] as Mark['kind'], detail: found[2] ?? '', source: source.trim() }];
  });
}

/** The repository's own rules. Through `extends` only the ignore list is lost, which leaves this file out. */
function lintFixture(): Map<number, Set<string>> {
  const directory = mkdtempSync(join(tmpdir(), 'twiceproof-lint-'));
  try {
    const config = join(directory, 'oxlintrc.json');
    writeFileSync(config, JSON.stringify({ extends: [join(root, '.oxlintrc.json')], options: { typeAware: true } }));
    const oxlint = join(root, 'node_modules/oxlint/bin/oxlint');
    const run = spawnSync(process.execPath, [oxlint, '--config', config, '--format', 'json', fixture], {
      cwd: root,
      encoding: 'utf8',
    });
    assert.equal(run.status, 1, `the linter must fail on the fixture:\n${run.stdout}${run.stderr}`);
    return collectRules(run.stdout);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

interface LintReport {
  diagnostics: { code: string; labels: { span: { line: number } }[] }[];
}

function collectRules(json: string): Map<number, Set<string>> {
  const rules = new Map<number, Set<string>>();
  for (const { code, labels } of (JSON.parse(json) as LintReport).diagnostics) {
    const line = labels[0]?.span.line ?? 0;
    // `typescript(no-floating-promises)` -> `no-floating-promises`
    const rule = /\((.+)\)/.exec(code)?.[1] ?? code;
    rules.set(line, (rules.get(line) ?? new Set()).add(rule));
  }
  return rules;
}
