import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { environment } from '../shared/origin.ts';
import { entries } from './entries.ts';
import type { Evidence } from '../chaos/system/siege.ts';
import { faultAfter } from './examine.ts';
import { pageOf, type GalleryResult } from './page.ts';
import { hasStoodStill, type Judged } from './trial.ts';

const recipes = join(import.meta.dirname, 'recipes');
const checkout = join(import.meta.dirname, '../..');

test('every recipe is in the list, under its own name, with points that it has', () => {
  const files = readdirSync(recipes).map((file) => `lab/gallery/recipes/${file}`);
  const used = new Set(entries.flatMap(({ substitutes }) => Object.values(substitutes)));
  assert.deepEqual([...used].toSorted(), files.toSorted());
  assert.equal(new Set(entries.map(({ name }) => name)).size, entries.length);
  for (const { substitutes, points } of entries.filter(({ name }) => name !== 'ours')) {
    for (const [kind, named] of Object.entries(points)) {
      const script = substitutes[kind as keyof typeof substitutes];
      assert.ok(script, `${kind} is substituted`);
      const text = readFileSync(join(checkout, script), 'utf8');
      for (const point of named) assert.ok(text.includes(`'${point}'`), `${script} has ${point}`);
    }
  }
});

test('at least twenty ways are wrong, over all three rooms, and each says in three sentences why', () => {
  const wrong = entries.filter(({ expects }) => expects === 'violated');
  assert.ok(wrong.length >= 20);
  assert.deepEqual(new Set(wrong.map(({ room }) => room)), new Set(['edge', 'relay', 'inbox']));
  for (const { name, why, shows } of wrong) {
    assert.equal(why.match(/[^.]+\./g)?.length, 3, name);
    assert.ok(shows, name);
  }
});

test('the page has a row for each that was judged, with what was found', () => {
  const judged: Judged = {
    name: 'mark-last',
    room: 'inbox',
    expects: 'violated',
    verdict: 'violated',
    ok: true,
    deltas: { doubled: 3 },
    orders: 4_000,
    first: { delta: 'doubled', orders: 17, fault: 'kill broker-1' },
    faults: { kill: 2 },
    tookS: 80,
    reasons: [],
  };
  const run = {
    command: 'npm run gallery -- --seed 1',
    startedAt: '2026-01-01T00:00:00Z',
    commit: 'abcdef012',
    environment: environment(),
  };
  const page = pageOf(entries, { judged: [{ ...judged, run }] });
  assert.match(page, /^- `npm run gallery -- --seed 1`, 2026-01-01, commit abcdef0$/m);
  const rows = page.split('\n').filter((line) => /^\| (edge|relay|inbox): /.test(line));
  assert.deepEqual(rows, [
    '| inbox: mark-last, work, commit, then mark the id | violated | 3 doubled | 4000 | after 17 orders | kill broker-1 |',
  ]);
});

test('the committed result has every recipe, each as expected and within two minutes, and the page is made of it', () => {
  const result = JSON.parse(readFileSync(join(checkout, 'lab/results/gallery/result.json'), 'utf8')) as GalleryResult;
  assert.deepEqual(
    result.judged.map(({ name, expects }) => `${name}: ${expects}`),
    entries.map(({ name, expects }) => `${name}: ${expects}`),
  );
  for (const { name, ok, expects, tookS, deltas } of result.judged) {
    assert.ok(ok, name);
    const { shows } = entries.find((entry) => entry.name === name)!;
    if (shows) assert.ok(deltas[shows]! > 0, `${name} has ${shows}`);
    if (expects === 'violated') assert.ok(tookS < 120, `${name} took ${tookS} s`);
  }
  const page = readFileSync(join(checkout, 'docs/gallery.md'), 'utf8');
  assert.equal(asWritten(page), asWritten(pageOf(entries, result)), 'npm run gallery -- --page, then npm run format');
});

/** Without the widths that the formatter gives to the columns of a table. */
function asWritten(page: string): string {
  return page.replaceAll(/ {2,}/g, ' ').replaceAll(/-{3,}/g, '---').trim();
}

test('one that brought few of the last orders through stood still; one that loses a few did not', () => {
  assert.equal(hasStoodStill({ written: 200, done: 200 }, 1), false);
  assert.equal(hasStoodStill({ written: 200, done: 190 }, 1), false);
  assert.equal(hasStoodStill({ written: 200, done: 100 }, 1), true, 'one of two processes stood still');
  assert.equal(hasStoodStill({ written: 200, done: 100 }, 0.5), false);
  assert.equal(hasStoodStill({ written: 0, done: 0 }, 1), true);
});

test('the next fault on what was wrong is told, and how much later it struck', () => {
  const strikes: Evidence['strikes'] = [
    { atMs: 4_000, fault: { kind: 'kill', role: 'relay-1', atMs: 0 } },
    { atMs: 5_000, fault: { kind: 'kill', role: 'payments-1', atMs: 0 } },
    { atMs: 5_400, fault: { kind: 'cut', wire: 'orders-1:http', scope: 'all', forMs: 1, atMs: 0 } },
    { atMs: 7_000, fault: { kind: 'cut', wire: 'payments-2:postgres', scope: 'all', forMs: 1, atMs: 0 } },
    { atMs: 9_000, fault: { kind: 'postgres-kill', server: 'postgres', atMs: 0 } },
  ];
  const after = (atMs: number): string => faultAfter(atMs, strikes, ['payments']);
  assert.equal(after(1_900), '3.1 s later: kill payments-1');
  assert.equal(after(4_600), '0.4 s later: kill payments-1');
  assert.match(after(5_001), /^2\.0 s later: cut on all connections of payments-2:postgres/);
  assert.equal(after(7_001), '2.0 s later: kill postgres');
  assert.equal(after(9_001), 'none came after it');
});
