import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { countAbove } from './histogram.ts';
import { openLedger } from './ledger.ts';
import { defaults, type LoadOptions } from './options.ts';
import { planFrom } from './plan.ts';
import { resultOf } from './result.ts';
import { runLoad, type LoadHooks, type LoadRun } from './run.ts';
import { created, readLedger, withServers, type Handler, type Line } from './servers-under-test.ts';

async function load(handlers: Handler[], changed: Partial<LoadOptions>, hooks: LoadHooks = {}): Promise<LoadRun> {
  return withServers(handlers, (urls) =>
    runLoad(
      { ...defaults, durationS: 0.5, rate: 800, clients: 16, seed: 42, retryDelayMs: 1, urls, ...changed },
      hooks,
    ),
  );
}

const noCuts = { atOnce: 1, afterAnswer: 1, elsewhere: 1, cut: 0 };
const onlyCuts = { atOnce: 0, afterAnswer: 0, elsewhere: 0, cut: 1 };

test('a stall shows in every request that was due meanwhile, not only in those in flight', async () => {
  const stallMs = 500;
  const held: (() => void)[] = [];
  let count = 0;
  let stalled = false;
  const handler: Handler = (key, response, request) => {
    if (++count === 100) {
      stalled = true;
      setTimeout(() => {
        stalled = false;
        for (const answer of held) answer();
      }, stallMs);
    }
    if (stalled) held.push(() => created(key, response, request));
    else created(key, response, request);
  };
  const { histograms, counts } = await load([handler], { retryRate: 0, rate: 400, durationS: 1.2 });
  assert.equal(counts.ok, counts.due);
  // 200 came due in those 500 ms, and waited 500 ms, 497.5 ms, ... 0 ms. A closed model would have asked 16 times.
  const overHalf = countAbove(histograms.all, stallMs / 2);
  assert.ok(overHalf >= 90, `${overHalf} took more than half of the stall`);
  const atAll = countAbove(histograms.all, stallMs / 10);
  assert.ok(atAll >= 170, `${atAll} felt it`);
});

test('all that is planned is sent, and equal keys get compared', async () => {
  const { counts, answers, histograms } = await load([created, created], { retryRate: 0.5, mix: noCuts });
  assert.equal(counts.intents, 200);
  assert.ok(counts.due > 350 && counts.due < 450);
  assert.deepEqual([counts.sent, counts.ok, counts.errors], [counts.due, counts.due, 0]);
  assert.deepEqual(counts.byStatus, { 201: counts.sent });
  assert.equal(answers.compared, counts.retries);
  assert.equal(answers.different, 0);
  const { all, first, retry, hot, cold } = histograms;
  assert.deepEqual([all.count, first.count + retry.count, hot.count + cold.count], Array(3).fill(counts.sent));
  assert.equal(retry.count, counts.retries);
});

test('an answer that differs from the first for its key is noticed', async () => {
  let count = 0;
  const forgetful: Handler = (key, response) => response.writeHead(201).end(`${key} ${++count > 200 ? 'again' : ''}`);
  const { answers } = await load([forgetful], { retryRate: 0.5, mix: noCuts });
  assert.ok(answers.different > 0 && answers.different < answers.compared);
  assert.ok(answers.samples.length > 0 && answers.samples.length <= 10);
  for (const { key, answer, first, now } of answers.samples) {
    assert.match(answer, /^HTTP\/1\.1 201 Created\r\n/);
    assert.ok(answer.includes(key));
    assert.notEqual(first, now);
  }
});

async function loadWithLedger(
  handlersOf: (path: string) => Handler[],
  changed: Partial<LoadOptions>,
): Promise<[LoadRun, Line[]]> {
  const directory = mkdtempSync(join(tmpdir(), 'load-'));
  const path = join(directory, 'ledger');
  try {
    const ledger = openLedger(path);
    const run = await load(handlersOf(path), changed, { ledger });
    ledger.close();
    assert.throws(() => openLedger(path), /EEXIST/);
    return [run, readLedger(path).lines];
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test('the ledger has every invocation before it is sent, and its outcome, and no other than the server saw', async () => {
  const seen: string[] = [];
  let unannounced = 0;
  const handlerOf =
    (target: number, path: string): Handler =>
    (key, response, request) => {
      if (!readFileSync(path, 'latin1').includes(key)) unannounced++;
      seen.push(`${target} ${key}`);
      created(key, response, request);
    };
  const [{ counts }, lines] = await loadWithLedger((path) => [handlerOf(0, path), handlerOf(1, path)], {
    retryRate: 0.3,
    mix: noCuts,
  });
  assert.equal(unannounced, 0);
  assert.equal(lines.length, counts.sent);
  assert.deepEqual(seen.toSorted(), lines.map(({ target, key }) => `${target} ${key}`).toSorted());
  const ofKeys = Object.values(Object.groupBy(lines, ({ key }) => key)).map((of) => of ?? []);
  for (const of of ofKeys) assert.equal(new Set(of.map(({ hash }) => hash)).size, 1);
  assert.ok(
    ofKeys.some((of) => new Set(of.map(({ target }) => target)).size === 2),
    'some went to both processes',
  );
  assert.ok(lines.every(({ verdict, reason }) => verdict === 'ok' && reason === 'answered'));
});

test('a cut connection is an unknown outcome, no error, and the retry that follows gets the answer', async () => {
  let requests = 0;
  const counting: Handler = (key, response, request) => {
    requests++;
    created(key, response, request);
  };
  const [{ counts, answers, options }, lines] = await loadWithLedger(() => [counting], {
    retryRate: 0.5,
    mix: onlyCuts,
  });
  const cut = lines.filter(({ reason }) => reason === 'cut');
  const plan = planFrom(options);
  let planned = 0;
  for (let intent = plan.next(); intent; intent = plan.next()) planned += intent.retries;
  assert.deepEqual([counts.cut, cut.length], [planned, planned], 'all attempts but the last of each');
  assert.ok(cut.every(({ verdict, hash }) => verdict === 'unknown' && hash === '\\N'));
  assert.deepEqual([counts.errors, counts.unknown, answers.different], [0, counts.cut, 0]);
  assert.equal(counts.sent, counts.due);
  const answered = new Set(lines.filter(({ verdict }) => verdict === 'ok').map(({ key }) => key));
  for (const { key } of cut) assert.ok(answered.has(key), `${key} was cut and never answered`);
  assert.ok(requests > counts.ok, 'the server saw requests whose answers were lost');
});

test('no answer in time is unknown, and takes its time in the latencies', async () => {
  const deaf: Handler = (key, response, request) => {
    if (key < '8') created(key, response, request);
  };
  const changed = { retryRate: 0, timeoutMs: 200, rate: 200, clients: 100 };
  const { counts, histograms } = await load([deaf], changed);
  assert.ok(counts.unknown > 20 && counts.ok > 20);
  assert.deepEqual(counts.byReason, { timeout: counts.unknown });
  assert.ok(countAbove(histograms.all, 190) >= counts.unknown);
});

test('a server that closes, breaks the protocol or refuses is not taken for one that answers', async () => {
  const rude: Handler = (key, response, request) => {
    const socket = request.socket;
    if (key < '4') socket.destroy();
    else if (key < '8') socket.end('HTTP/1.1 201 Created\r\ncontent-length: x\r\n\r\n');
    else if (key < 'c') response.writeHead(503).end();
    else response.writeHead(409).end();
  };
  const { counts } = await load([rude], { retryRate: 0 });
  const { reset = 0, protocol = 0 } = counts.byReason;
  const { 503: unavailable = 0, 409: conflict = 0 } = counts.byStatus;
  for (const count of [reset, protocol, unavailable, conflict]) assert.ok(count > 50);
  assert.deepEqual([counts.ok, counts.fail, counts.errors], [0, conflict, 400]);
  assert.equal(counts.unknown, reset + protocol + unavailable);
});

test('once nobody listens, few are refused, which is a failure and not an unknown, and the rest waits', async () => {
  const served = Promise.withResolvers<void>();
  const last: Handler = (key, response, request) => {
    created(key, response, request);
    served.resolve();
  };
  let run: Promise<LoadRun> | undefined;
  await withServers([last], async (urls) => {
    const options = { ...defaults, urls, durationS: 1, rate: 400, retryRate: 0, clients: 4, seed: 1, timeoutMs: 500 };
    run = runLoad(options);
    await served.promise;
  });
  const { counts } = await run!;
  const refused = counts.byReason['refused']!;
  // 10 + 20 + 40 + 80 + 160 ms, and then four in a second; those of the first turns may have gone together.
  assert.ok(refused > 0 && refused < 30, `${refused} were refused`);
  assert.equal(counts.fail, refused);
  assert.ok(counts.expired > 200 && counts.expired + counts.sent === counts.due, 'what waits too long was never sent');
});

test('more than may wait is dropped, counted, and makes the run invalid', async () => {
  const abort = new AbortController();
  let count = 0;
  const deaf: Handler = () => {
    if (++count === 2) abort.abort();
  };
  const changed = { retryRate: 0, clients: 1, maxWaiting: 5, timeoutMs: 300, rate: 200 };
  const run = await load([deaf], changed, { signal: abort.signal });
  assert.ok(run.counts.dropped > 20);
  assert.ok(run.interrupted);
  const { valid, problems } = resultOf(run, 'test');
  assert.equal(valid, false);
  assert.match(problems.join(), /dropped/);
});

test('told to stop, it sends no more and waits for what is in flight', async () => {
  const abort = new AbortController();
  let late: (() => void) | undefined;
  const handler: Handler = (key, response, request) => {
    if (late) return created(key, response, request);
    late = () => created(key, response, request);
    abort.signal.addEventListener('abort', () => setImmediate(late!));
    abort.abort();
  };
  const { counts, interrupted } = await load([handler], { durationS: 60, retryRate: 0 }, { signal: abort.signal });
  assert.ok(interrupted && counts.sent < 400);
  assert.equal(counts.ok, counts.sent);
});
