import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chooseStart } from './position.ts';

const lane = { topic: 't', partition: 3, topicId: 'x', earliest: 10n, end: 100n };

/** What the database knows, what the group has settled, and where it starts. */
const cases: [why: string, known: bigint | undefined, committed: bigint | undefined, start: bigint][] = [
  ['neither: the beginning', undefined, undefined, 10n],
  ['the group alone: the beginning, since another database may have processed that', undefined, 50n, 10n],
  ['the group alone, at the end: the beginning, and not the latest', undefined, 100n, 10n],
  ['the database alone: its position', 40n, undefined, 40n],
  ['both the same', 40n, 40n, 40n],
  ['a database that was restored is behind: from there', 20n, 90n, 20n],
  ['a group that was set back is replayed', 90n, 20n, 20n],
  ['a group that was set back before the beginning of the log', 90n, 3n, 10n],
  ['a group that was set forward skips nothing', 20n, 100n, 20n],
  ['a group beyond the end of a log that has lost it: what the database knows', 90n, 200n, 90n],
  ['all is processed', 100n, 100n, 100n],
  ['at the beginning of the log', 10n, 10n, 10n],
  ['beyond the end as we were told it: the transport looks again', 101n, undefined, 101n],
  ['beyond the end: what the group says may be of records that are others now', 101n, 50n, 101n],
];

for (const [why, known, committed, start] of cases) {
  test(why, () => {
    assert.deepEqual(chooseStart({ ...lane, committed }, known), { topic: 't', partition: 3, offset: start });
  });
}

test('records that were deleted before they were processed: from the beginning, with an alarm', () => {
  for (const committed of [undefined, 5n, 50n]) {
    const { offset, alarm } = chooseStart({ ...lane, committed }, 9n);
    assert.equal(offset, 10n);
    assert.match(alarm!, /offsets 9 to 10 were deleted/);
  }
});
