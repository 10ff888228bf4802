import assert from 'node:assert/strict';
import { test } from 'node:test';
import { begin, jsonText } from '../result.ts';
import { judgeInbox } from './bars.ts';
import { caseNames, estimatedS, scales } from './cases.ts';
import { exampleInboxRound } from './example-round.ts';
import { keysScale, neededBytes, requireSpace } from './keys-command.ts';
import { storeSpecs } from './keys.ts';
import { planLatency } from './latency.ts';
import { plotInbox } from './plot.ts';
import { inboxReport } from './report.ts';
import { inboxResult, type InboxResult } from './result.ts';

function example(rounds = [exampleInboxRound(), exampleInboxRound({ set: 8_000 }), exampleInboxRound()]): InboxResult {
  const call = { command: 'npm run bench -- inbox --seed 7', seed: 7, scale: scales.quick };
  const versions = { postgres: '18.4', kafka: '4.3.1' };
  return inboxResult(begin(), call, { rounds, versions }, judgeInbox(rounds, scales.quick));
}

test('the result says how it came about, and fails with a bar, but not with an aim', () => {
  const result = example();
  assert.equal(result.pass, true);
  assert.equal(result.median.consume?.ways.set?.[0]?.perSecond, 15_000);
  assert.equal(example([exampleInboxRound({ p99Ms: 190 })]).pass, false);
  assert.equal(example([exampleInboxRound({ largeExpiryMs: 900 })]).pass, true);
  assert.deepEqual(JSON.parse(jsonText(result)), JSON.parse(JSON.stringify(result)));
});

test('the report has a line for each way to consume, each store, each bar and each round', () => {
  const text = inboxReport(example());
  assert.match(text, /ceiling: consume and discard +60000 +60000 60000 60000 /);
  assert.match(text, /batched, a handler for sets, 0 % again +15000 +15000 8000 15000 +30\.0 +20\.0 +10\.0 +0\n/);
  assert.match(text, /batched, a handler for sets, 100 % again +20000 /);
  assert.match(text, /textbook: a transaction for each, 30 % again +1100 /);
  assert.match(text, /10 M keys, partitions +3000 +4400 +4400 4400 4400 +9000 +230 +76 +49\.5\n/);
  assert.match(text, /1 M keys, one table, UUIDv4 +3000 +9000 /);
  assert.match(text, /the end of a day of 20,000 and 200,000 keys\n.*\n +small +8 +15 +18000 +400 +30000000\n/);
  assert.match(text, /beside an open transaction +40 +1 +14 +9 +0 +7 +0 +1000\n/);
  assert.match(text, /5000 orders\/s +20\.0 +120\.0 +11\.0 +30\.0 +5\.0 +100 +60 +90 +150\n/);
  assert.match(text, /over those of the textbook +bar +15 +>= 10 +pass +15 8 15\n/);
  assert.doesNotMatch(text, /NOTE/);
  const disturbed = exampleInboxRound();
  disturbed.latency!.otherCores = 0.9;
  assert.match(inboxReport(example([disturbed])), /NOTE: something else kept up to 0\.9 cores busy/);
});

test('a part alone has its own tables only', () => {
  const { keys } = exampleInboxRound();
  const text = inboxReport(example([{ keys: keys! }]));
  assert.match(text, /500 new keys in one statement/);
  assert.doesNotMatch(text, /messages\/s|the end of a day|commit of an order/);
});

test('the plot has bars and dots inside its frame', () => {
  const svg = plotInbox(example());
  assert.match(svg, /^<svg [^]*<\/svg>\n$/);
  assert.ok(!/NaN|undefined|Infinity/.test(svg));
  const dots = [...svg.matchAll(/<circle cx="([\d.]+)"/g)].map(([, x]) => Number(x));
  // A dot for each round: of 10 ways to consume, 4 stores, 6 ends of a day, 4 percentiles.
  assert.equal(dots.length, 3 * (10 + 4 + 6 + 4));
  assert.ok(dots.every((x) => x >= 250 && x <= 870));
  assert.match(plotInbox(example([{}])), /<\/svg>/);
});

test('quick is planned to end within its 5 minutes', () => {
  assert.ok(estimatedS(scales.quick, caseNames) < 300, `${estimatedS(scales.quick, caseNames)} s`);
  assert.ok(estimatedS(scales.quick, ['keys']) < estimatedS(scales.quick, ['keys', 'expiry']));
});

test('both rates are measured after a moment at the same rate, and to their end', () => {
  const text = planLatency({ warmS: 2, measuredS: 3 }).map(({ perSecond, seconds }) => `${perSecond}x${seconds}`);
  assert.deepEqual(text, ['2000x2', '5000x1', '5000x3', '1x1', '1000x1', '1000x3', '1x1']);
});

test('100 M keys say beforehand how much room they need, and are refused where there is less', () => {
  const needed = neededBytes(storeSpecs(keysScale(100_000_000)));
  assert.ok(needed > 30e9 && needed < 45e9, `${needed}`);
  requireSpace(needed, { usedBytes: needed - 1e9, freeBytes: 2e9 }, '/data');
  const refused = /need 40\.\d GB in \/data; 1\.0 GB are used there, and 20\.0 GB are free/;
  assert.throws(() => requireSpace(needed, { usedBytes: 1e9, freeBytes: 20e9 }, '/data'), refused);
  assert.deepEqual(keysScale(100_000).partitioned, [50_000, 100_000]);
});
