import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createMetrics, type Metrics } from '@twiceproof/program/metrics';
import { openLedger } from './ledger.ts';
import { defaults, type LoadOptions } from './options.ts';
import { resultOf } from './result.ts';
import { runLoad, type LoadRun } from './run.ts';
import { createBook, created, readLedger, serveGrpc, serveHttp, until, withServers } from './servers-under-test.ts';
import type { Handler, Line } from './servers-under-test.ts';

const options = { ...defaults, urls: [], durationS: 1.5, rate: 400, clients: 32, seed: 3, retryDelayMs: 1 };

function gauge(metrics: Metrics, name: string): number {
  return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(metrics.text())?.[1]);
}

/** A dies with requests in flight, stays away until some wait for it, and comes back at its address. B lives on. */
async function withOutage(door: 'http' | 'grpc', changed: Partial<LoadOptions>): Promise<[LoadRun, Line[]]> {
  const serve = door === 'http' ? serveHttp : serveGrpc;
  let isDeaf = false;
  const [bookA, bookB] = [createBook(() => isDeaf), createBook()];
  let a = await serve(bookA);
  const b = await serve(bookB);
  const directory = mkdtempSync(join(tmpdir(), 'load-'));
  try {
    const addresses = [a, b].map(({ port }) => `127.0.0.1:${port}`);
    const targets = door === 'http' ? { urls: addresses.map((one) => `http://${one}`) } : { grpc: addresses };
    const ledger = openLedger(join(directory, 'ledger'));
    const metrics = createMetrics();
    const running = runLoad({ ...options, ...targets, ...changed }, { ledger, metrics });
    await until(() => bookA.asked.size > 50, 'asked');
    isDeaf = true;
    await until(() => bookA.unanswered >= 12, 'in flight');
    await a.kill();
    await until(() => gauge(metrics, 'load_waiting_requests') >= 80, 'waiting');
    isDeaf = false;
    a = await serve(bookA, a.port);
    const run = await running;
    ledger.close();
    return [run, readLedger(join(directory, 'ledger')).lines];
  } finally {
    await Promise.all([a.kill(), b.kill()]);
    rmSync(directory, { recursive: true });
  }
}

for (const door of ['http', 'grpc'] as const) {
  test(`${door}: a process that dies and comes back costs what was in flight, and nothing that waited`, async () => {
    const mix = { atOnce: 1, afterAnswer: 1, elsewhere: 6, cut: 1 };
    const [run, lines] = await withOutage(door, { retryRate: 0.8, mix });
    const { counts } = run;
    assert.deepEqual(resultOf(run, 'test').problems, []);
    assert.deepEqual([counts.dropped, counts.expired, counts.due], [0, 0, counts.sent]);
    const { reset = 0, refused = 0 } = counts.byReason;
    assert.deepEqual(Object.keys(counts.byReason).toSorted(), ['cut', ...(refused ? ['refused'] : []), 'reset']);
    const linesToA = options.clients / 2;
    assert.ok(reset > 0 && reset <= linesToA, `${reset} were lost`);
    assert.deepEqual([counts.fail, counts.unknown], [refused, reset + counts.cut]);
    assert.ok(run.unsettled <= reset);
    const ofKeys = Map.groupBy(lines, ({ key }) => key);
    const isOk = ({ verdict }: Line): boolean => verdict === 'ok';
    const isLost = ({ reason }: Line): boolean => reason === 'reset';
    for (const { key, reason } of lines) {
      const all = ofKeys.get(key)!;
      if (reason === 'cut') assert.ok(all.some(isOk) || all.some(isLost), 'what was cut is asked again');
    }
    const lost = lines.filter((line) => isLost(line) && line.target === '0');
    assert.ok(
      lost.some(({ key }) => ofKeys.get(key)!.some((one) => isOk(one) && one.target === '1')),
      'one that was lost at A is answered by B',
    );
  });

  test(`${door}: with time to settle, every key has a definite outcome`, async () => {
    const [run, lines] = await withOutage(door, { retryRate: 0.2, settleS: 20 });
    const unknown = new Set(lines.filter(({ verdict }) => verdict === 'unknown').map(({ key }) => key));
    assert.ok(unknown.size > 0);
    assert.equal(run.unsettled, 0);
    const ok = new Set(lines.filter(({ verdict }) => verdict === 'ok').map(({ key }) => key));
    assert.deepEqual(
      [...unknown].filter((key) => !ok.has(key)),
      [],
    );
    assert.ok(run.counts.sent > run.counts.intents);
  });
}

test('what does not settle is asked again and again, and given up and counted when the time is over', async () => {
  const asked = new Map<string, number>();
  const breaking: Handler = (key, response, request) => {
    const times = (asked.get(key) ?? 0) + 1;
    asked.set(key, times);
    if (key < '8') created(key, response, request);
    // Lost twice, and then for ever without an answer.
    else if (times <= 2) request.socket.destroy();
  };
  await withServers([breaking], async (urls) => {
    const changed = { retryRate: 0, durationS: 0.3, timeoutMs: 60_000, settleS: 1.5 };
    const { unsettled, counts, elapsedMs } = await runLoad({ ...options, ...changed, urls });
    const lost = [...asked.keys()].filter((key) => key >= '8').length;
    assert.ok(unsettled === lost && lost > 0 && lost < counts.intents);
    assert.equal(Math.max(...asked.values()), 3);
    assert.ok(counts.byReason['timeout']! > 0 && elapsedMs < changed.timeoutMs);
    assert.equal(counts.due, counts.sent + counts.expired);
  });
});

test('a refusal of what was asked settles a key whose outcome is unknown; "not now" does not', async () => {
  for (const [status, isDefinite] of [
    [429, false],
    [404, true],
  ] as const) {
    const asked = new Set<string>();
    const refusing: Handler = (key, response, request) => {
      if (asked.has(key)) response.writeHead(status).end();
      else request.socket.destroy();
      asked.add(key);
    };
    await withServers([refusing], async (urls) => {
      const changed = { retryRate: 0, durationS: 0.1, settleS: 1 };
      const { unsettled, counts } = await runLoad({ ...options, ...changed, urls });
      assert.ok(asked.size > 0 && counts.fail > 0);
      assert.equal(unsettled, isDefinite ? 0 : asked.size, `${status}`);
    });
  }
});

test('told to stop, it settles what it has begun', async () => {
  const abort = new AbortController();
  let isDeaf = false;
  const book = createBook(() => isDeaf);
  let server = await serveHttp(book);
  try {
    const urls = [`http://127.0.0.1:${server.port}`];
    const changed = { durationS: 60, retryRate: 0, settleS: 20 };
    const running = runLoad({ ...options, ...changed, urls }, { signal: abort.signal });
    await until(() => book.asked.size > 20, 'asked');
    isDeaf = true;
    await until(() => book.unanswered >= 5, 'in flight');
    abort.abort();
    await server.kill();
    isDeaf = false;
    server = await serveHttp(book, server.port);
    const { interrupted, unsettled, counts } = await running;
    assert.ok(interrupted && counts.unknown >= 5);
    assert.equal(unsettled, 0);
  } finally {
    await server.kill();
  }
});
