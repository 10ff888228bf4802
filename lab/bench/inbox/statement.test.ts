import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { acceptText, dayMs, daysAround, firstIdOf, forgetTexts, newIds, raiseFloorText } from './statement.ts';

const sources = join(import.meta.dirname, '../../../packages/twiceproof/src/inbox');

/** With one blank where there is any, and the schema as it is by default. */
function normalized(text: string): string {
  const schema = /\$\{(schema|quotedSchema\(schemaName\))\}/g;
  return text
    .replaceAll(schema, 'twiceproof')
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/ ?([()]) ?/g, '$1');
}

function requireIn(file: string, ...texts: string[]): void {
  const source = normalized(readFileSync(join(sources, file), 'utf8'));
  for (const text of texts) assert.ok(source.includes(normalized(text)), `${file} has changed: ${text}`);
}

test('what is timed is what the inbox and its keeper send', () => {
  requireIn('accept.ts', acceptText);
  requireIn('partitions.ts', raiseFloorText);
  const day = { fromMs: 0, toMs: dayMs };
  const named = forgetTexts(day, 'attached').map((text) => text.replace('twiceproof."inbox_0_86400000"', '${name}'));
  assert.equal(named.length, 2);
  requireIn('partitions.ts', named[0]!.replace(' CONCURRENTLY', '`'), '${detach} CONCURRENTLY', `\`${named[1]}\``);
  assert.deepEqual(forgetTexts(day, 'detached').length, 1);
  assert.match(forgetTexts(day, 'detaching')[0]!, /FINALIZE$/);
  assert.deepEqual(forgetTexts(day, 'gone'), []);
});

test('ids of version 7 bear their time and grow; those of version 4 do neither', () => {
  const nowMs = Date.UTC(2026, 0, 1, 12);
  const ids = newIds(500, 7, nowMs);
  assert.deepEqual(ids, ids.toSorted());
  assert.equal(new Set(ids).size, 500);
  for (const id of ids) {
    assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    assert.ok(id >= firstIdOf(nowMs) && id < firstIdOf(nowMs + 1));
  }
  const random = newIds(500, 4);
  assert.ok(random.every((id) => id[14] === '4'));
  assert.notDeepEqual(random, random.toSorted());
});

test('days are cut at midnight, as the keeper cuts them', () => {
  const noon = Date.UTC(2026, 0, 3, 12);
  const days = daysAround(noon - 2 * dayMs, noon);
  assert.equal(days.length, 3);
  assert.deepEqual(days[0], { fromMs: Date.UTC(2026, 0, 1), toMs: Date.UTC(2026, 0, 2) });
});
