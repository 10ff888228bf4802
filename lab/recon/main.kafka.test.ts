import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { court, found } from './judge-under-test.ts';
import type { Report } from './recon.ts';
import { soundRun, uuidv7, type Run } from './run-under-test.ts';
import { openProducer, produce, withLedger, write } from './world-under-test.ts';

const { emptyPlace, ordersUrl, paymentsUrl, brokers, close } = await court();
after(close);

interface Ended {
  code: number;
  stdout: string;
  stderr: string;
}

/** The program itself. */
async function recon(...args: readonly string[]): Promise<Ended> {
  const env = { ...process.env, DATABASE_URL: ordersUrl, TWICEPROOF_PAYMENTS_URL: paymentsUrl, KAFKA_BROKERS: brokers };
  const running = promisify(execFile)(process.execPath, [join(import.meta.dirname, 'main.ts'), ...args], { env });
  return running.then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    (ended: unknown) => ended as Ended,
  );
}

const reportIn = ({ stdout }: Ended): Report => JSON.parse(stdout.trimEnd().split('\n').at(-1)!) as Report;

test('exit code 0 and one object on the last line; a table for people; a file', async () => {
  const place = await emptyPlace();
  await withLedger(await write(soundRun(), place), async (path) => {
    const args = [`--ledger=${path}`, `--topics=${place.topic}`];
    const out = join(dirname(path), 'out');
    const json = await recon(...args, '--json', '--admin-port=0', `--out=${out}`);
    assert.deepEqual([json.code, reportIn(json).verdict], [0, 'clean'], json.stderr);
    assert.match(json.stdout, /^\{"ready":true,"admin":"http:/);
    assert.deepEqual(JSON.parse(await readFile(join(out, 'verdict.json'), 'utf8')), reportIn(json));
    assert.deepEqual(await readdir(out), ['verdict.json']);
    const table = await recon(...args);
    assert.match(table.stdout, /^ {2}orders +12\n/m);
    assert.match(table.stdout, /^ {2}lost +0\n/m);
    assert.match(table.stdout, /verdict: clean \(\d+\.\d s\)\n$/);
  });
});

test('exit code 1 for what is wrong, and for what could not be decided; 2 for a wrong call', async () => {
  const place = await emptyPlace();
  const run = soundRun();
  run.charges.push({ ...run.charges[0]!, charge_id: uuidv7() });
  await withLedger(await write(run, place), async (path) => {
    const out = join(dirname(path), 'out');
    const wrong = await recon(`--ledger=${path}`, `--topics=${place.topic}`, `--out=${out}`);
    assert.equal(wrong.code, 1);
    const [head, ...lines] = (await readFile(join(out, 'messages.tsv'), 'utf8')).trimEnd().split('\n');
    assert.match(head!, /^topic\tpartition\tposition\t/);
    assert.equal(lines.length, run.records.length);
    assert.ok(wrong.stdout.includes(`charge:${run.orders[0]!.order_id}\n`), wrong.stdout);
  });
  await withLedger('not a ledger', async (path) => {
    const nothing = await recon(`--ledger=${path}`, `--topics=${place.topic}`, '--json');
    const { verdict, deltas } = reportIn(nothing);
    assert.deepEqual([nothing.code, verdict, deltas], [1, 'undecided', {}]);
  });
  const missing = await recon('--ledger=/nowhere');
  assert.equal(missing.code, 2);
  assert.match(missing.stderr, /--ledger=\/nowhere: there is no such file/);
  assert.equal((await recon('--horizon-s=5')).code, 2);
});

test('tables of somebody else, by the example of the README', async () => {
  const readme = await readFile(join(import.meta.dirname, 'README.md'), 'utf8');
  const block = (language: string): string => new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, 's').exec(readme)![1]!;
  const { orders, payments, topic } = await emptyPlace();
  for (const pool of [orders, payments]) await pool.query(block('sql'));
  const producer = openProducer(brokers);
  const records: Run['records'] = [];
  for (let n = 1; n <= 5; n += 1) {
    const id = randomUUID();
    await orders.query(`INSERT INTO requests VALUES ($1, $1, $2, true)`, [`r${n}`, n * 100]);
    if (n === 3) continue; // It was answered, and nothing was done.
    await orders.query(`INSERT INTO bookings VALUES ($1, $2, $3)`, [n, `r${n}`, n * 100]);
    await orders.query(`INSERT INTO events VALUES ($1, $2, 'booked')`, [id, n]);
    records.push({ partition: n % 3, key: `${n}`, value: 'booked', headers: { 'event-id': id }, atMs: Date.now() });
    await payments.query(`INSERT INTO mails VALUES ($1, $2, $3)`, [n, id, n]);
    if (n === 4) await payments.query(`INSERT INTO mails VALUES (9, $1, $2)`, [id, n]);
  }
  await produce(producer, topic, records);
  await producer.close();
  await withLedger('', async (path) => {
    const config = join(dirname(path), 'recon.json');
    await writeFile(config, block('json'));
    const ended = await recon(`--config=${config}`, `--topics=${topic}`, '--json');
    const report = reportIn(ended);
    assert.deepEqual([ended.code, report.reasons], [1, []]);
    const mail = records.find(({ key }) => key === '4')!.headers['event-id'];
    assert.deepEqual(found(report), { lost: ['order:r3'], doubled: [`effect:mails/${mail}`] });
  });
});
