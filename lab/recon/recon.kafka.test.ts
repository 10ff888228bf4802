import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Admin } from '@platformatic/kafka';
import { configOf, type Config } from './config.ts';
import { deltas } from './invariants.ts';
import { court, found } from './judge-under-test.ts';
import { ledgerOf, soundRun, uuidv7, type Run } from './run-under-test.ts';
import { withLedger, write } from './world-under-test.ts';

const { judged, emptyPlace, verdict, ordersUrl, brokers, close } = await court();
after(close);

test('a run in which all is as it should be is clean, and everything in it is counted', async () => {
  const report = await judged([soundRun()]);
  assert.deepEqual(report.reasons, []);
  assert.deepEqual(found(report), {});
  assert.equal(report.verdict, 'clean');
  const { notJudged, ...counts } = report.counts;
  assert.equal(notJudged, 0);
  assert.deepEqual(counts, {
    requests: 35,
    intents: 25,
    answered: 21,
    unknown: 4,
    refused: 0,
    neverSent: 0,
    replayedAnswers: 10,
    orders: 12,
    otherOrders: 0,
    outboxRows: 24,
    messages: 24,
    wireDuplicates: 0,
    inboxRows: 24,
    charges: 12,
    effects: 24,
    held: 0,
    parked: 0,
  });
});

const innocent: Record<string, (run: Run) => void> = {
  'published twice, byte for byte': ({ records }) => {
    records.push(records[0]!, records[4]!);
  },
  'too much at the moment beside an ok, and a request that was never sent': ({ calls }) => {
    const [first, second] = calls.filter(({ key }) => key === calls[0]!.key);
    second!.answer = { ...first!.answer!, verdict: 'fail', code: 429, hash: 'later', order_id: null, version: null };
    calls.push({ ...calls[0]!, answer: { verdict: 'fail', code: 0, hash: null, order_id: null, version: null } });
  },
};

test('an intent that was refused, and not done, is right; but whoever knows that he asked nothing wrong can tell', async () => {
  const run = soundRun();
  run.calls.at(-1)!.answer = { verdict: 'fail', code: 429, hash: 'no', order_id: null, version: null };
  const report = await judged([run]);
  assert.deepEqual([report.verdict, report.reasons, found(report)], ['clean', [], {}]);
  assert.deepEqual([report.counts['refused'], report.counts['unknown']], [1, 3]);
});

test('what was never sent, for want of a connection, is counted, and is neither refused nor unknown', async () => {
  const run = soundRun();
  run.calls.at(-1)!.answer = { verdict: 'fail', code: null, hash: null, order_id: null, version: null };
  const report = await judged([run]);
  const { intents, answered, unknown, refused, neverSent } = report.counts;
  assert.deepEqual([report.verdict, intents, answered, unknown, refused, neverSent], ['clean', 25, 21, 3, 0, 1]);
});

for (const [name, change] of Object.entries(innocent)) {
  test(`not convicted: ${name}`, async () => {
    const run = soundRun();
    change(run);
    const report = await judged([run]);
    assert.deepEqual([report.verdict, report.reasons, found(report)], ['clean', [], {}]);
    assert.equal(report.counts['wireDuplicates'], run.records.length - run.outbox.length);
  });
}

test('not convicted: an effect below the floor of the inbox, which may have forgotten it', async () => {
  const run = soundRun();
  const { msg_id } = run.inbox.shift()!;
  const place = await emptyPlace();
  const text = await write(run, place);
  assert.deepEqual(found(await verdict(text, place)), { lost: [`inbox:${run.orders[0]!.order_id}/1`] });
  await place.payments.query('INSERT INTO twiceproof.inbox_bounds (floor, ceiling) VALUES ($1, $1)', [
    run.inbox[0]!.msg_id,
  ]);
  assert.ok(msg_id < run.inbox[0]!.msg_id);
  assert.deepEqual(found(await verdict(text, place)), {});
  await place.payments.query('DELETE FROM twiceproof.inbox_bounds');
});

test('rows of other runs in the same tables and on the same topic do not disturb', async () => {
  const report = await judged([soundRun(), soundRun({ nonce: 8, orders: 5 })]);
  assert.deepEqual([report.verdict, report.reasons, found(report)], ['clean', [], {}]);
  const { orders, otherOrders, effects, charges, messages } = report.counts;
  assert.deepEqual([orders, otherOrders, effects, charges, messages], [12, 5, 24, 12, 24]);
});

test('two ledgers of one system are judged together', async () => {
  const place = await emptyPlace();
  const texts = [await write(soundRun(), place), await write(soundRun({ nonce: 8 }), place)];
  const report = await withLedger(texts[1]!, async (other) =>
    withLedger(texts[0]!, async (one) => verdict(texts[0]!, place, { ledgers: [one, other] })),
  );
  assert.deepEqual([report.verdict, report.reasons, found(report)], ['clean', [], {}]);
  assert.equal(report.counts['orders'], 24);
});

test('of more ids than are shown the number is right', async () => {
  const run = soundRun({ orders: 30 });
  run.charges.length = 0;
  const lost = (await judged([run])).deltas.lost!;
  assert.deepEqual([lost.count, lost.ids.length], [30, 20]);
});

test('the horizon: what is younger is not lost yet, what is older is', async () => {
  const run = soundRun();
  const young = run.outbox[0]!;
  const old = run.outbox.at(-1)!;
  const published = run.outbox[1]!;
  young.created_at = new Date();
  run.records[1]!.atMs = Date.now();
  const isGone = ({ msg_id }: { msg_id: string }): boolean =>
    [young, published, old].some((row) => row.msg_id === msg_id);
  run.effects = run.effects.filter((row) => !isGone(row));
  run.inbox = run.inbox.filter((row) => !isGone(row));
  // Told a second ago; the order is not in what was read before.
  run.calls.push({ ...run.calls[0]!, key: 'told-just-now', account_id: 7 * 2 ** 32 + 900, amount_cents: 1 });
  run.calls.at(-1)!.answer = { ...run.calls[0]!.answer!, order_id: uuidv7(), agoMs: 1_000 };
  const lostIs = `inbox:${old.order_id}/3`;
  const live = await judged([run], { horizonMs: 20_000 });
  assert.deepEqual(live.deltas.lost, { count: 1, ids: [lostIs] });
  assert.equal(live.counts['notJudged'], 1);
  const drained = await judged([run]);
  const since = [`inbox:${young.order_id}/1`, `inbox:${published.order_id}/1`, 'order:told-just-now'];
  assert.deepEqual(drained.deltas.lost!.ids, [lostIs, ...since].toSorted());
});

test('a topic whose beginning is deleted: nothing is found clean, and what was processed is not lost', async () => {
  const place = await emptyPlace();
  const run = soundRun();
  const text = await write(run, place);
  const admin = new Admin({ clientId: 'recon-test', bootstrapBrokers: brokers.split(',') });
  await admin.deleteRecords({ topics: [{ name: place.topic, partitions: [{ partition: 1, offset: 2n }] }] });
  await admin.close();
  const report = await verdict(text, place);
  assert.deepEqual([report.verdict, found(report)], ['undecided', {}]);
  assert.deepEqual(report.reasons, [`${place.topic}/1 begins at 2: what was before is deleted`]);
});

test('what is left out is not compared, and not said to be right', async () => {
  const report = await judged([soundRun()], { config: configOf({ claims: null, held: null, parked: null }) as Config });
  const missing = deltas.filter((delta) => !(delta in report.deltas));
  assert.deepEqual([report.verdict, missing], ['clean', ['unclaimed', 'late', 'parked', 'quarantined']]);
});

test('intents of a table of somebody else: a refusal is one, whatever its code', async () => {
  const intents = `SELECT 'create' AS operation, 'k' || n AS key, 'nobody ' || n AS account_id,
    CASE n WHEN 1 THEN 'fail' ELSE 'unknown' END AS verdict FROM generate_series(1, 2) AS n`;
  const config = configOf({ intents }) as Config;
  const { counts } = await verdict('', await emptyPlace(), { ledgers: [], config });
  const { requests, refused, neverSent, unknown } = counts;
  assert.deepEqual([requests, refused, neverSent, unknown], [2, 1, 0, 1]);
});

const place = await emptyPlace();
const sets = (value: object): Config => configOf(value) as Config;
const undecided: Record<string, { ledger?: string; options?: object; reason: RegExp }> = {
  'no ledger': { options: { ledgers: ['/nowhere/ledger.tsv'] }, reason: /^a ledger cannot be read: ENOENT/ },
  'a ledger of another version': { ledger: '# {"ledger":1}\n', reason: /is not a ledger of version 3$/ },
  'a ledger with broken lines': {
    ledger: `${ledgerOf([])}i\tx\n`,
    reason: /^reading the ledger .*invalid input syntax/,
  },
  'an answer without its request': {
    ledger: `${ledgerOf([])}o\t1\t1\tok\t201\th\t\\N\t1\t\\N\t\\N\n`,
    reason: /has outcomes without a request, or two lines for one$/,
  },
  'two outcomes of one request': {
    ledger: `${ledgerOf(soundRun().calls)}o\t0\t1\tok\t201\th\t\\N\t1\t\\N\t\\N\n`,
    reason: /has outcomes without a request, or two lines for one$/,
  },
  'two requests with one number': {
    ledger: ledgerOf(soundRun().calls) + ledgerOf(soundRun({ orders: 1 }).calls).split('\n')[1]! + '\n',
    reason: /has outcomes without a request, or two lines for one$/,
  },
  'a verdict that nobody knows': {
    ledger: ledgerOf(soundRun().calls).replace('\tok\t', '\tperhaps\t'),
    reason: /^reading the ledger .*violates check constraint/,
  },
  'nothing was asked': { ledger: ledgerOf([]), reason: /there are no intents/ },
  'nothing was answered': {
    ledger: ledgerOf(soundRun().calls.map(({ answer: _, ...call }) => call)),
    reason: /no request has a definite answer/,
  },
  'one key with two bodies': {
    ledger: ledgerOf([...soundRun().calls, { ...soundRun().calls[0]!, amount_cents: 1 }]),
    reason: /was sent with two bodies/,
  },
  'two keys with one account': {
    ledger: ledgerOf([...soundRun().calls, { ...soundRun().calls[0]!, key: 'another' }]),
    reason: /belongs to two keys/,
  },
  'no such table': {
    options: { config: sets({ charges: 'SELECT * FROM nowhere' }) },
    reason: /^reading charges: relation "nowhere" does not exist$/,
  },
  'no such database': {
    options: { paymentsUrl: `${ordersUrl}_not` },
    reason: /^a database cannot be reached: database .* does not exist$/,
  },
  'no such topic': { options: { topics: ['nowhere'] }, reason: /^reading the topic: / },
  'it was stopped': { options: { signal: AbortSignal.abort('enough') }, reason: /^it was stopped \(enough\)/ },
};

for (const [name, { ledger = ledgerOf(soundRun().calls), options, reason }] of Object.entries(undecided)) {
  test(`could not decide: ${name}`, async () => {
    const report = await verdict(ledger, place, options);
    assert.equal(report.verdict, 'undecided');
    assert.equal(report.reasons.length, 1);
    assert.match(report.reasons[0]!, reason);
  });
}
