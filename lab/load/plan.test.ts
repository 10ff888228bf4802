import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { defaults, problemsOf, type LoadOptions } from './options.ts';
import { isConcurrent, isCut, nextAttempt, planFrom, type Send } from './plan.ts';
import { randomFrom, zipfFrom } from './random.ts';
import { createRequest, type Request } from './request.ts';

const options: LoadOptions = { ...defaults, urls: ['http://127.0.0.1:1', 'http://127.0.0.1:2'], seed: 7 };

function intentsOf(changed: Partial<LoadOptions> = {}): Send[] {
  const plan = planFrom({ ...options, ...changed });
  const intents: Send[] = [];
  for (let intent = plan.next(); intent; intent = plan.next()) intents.push(intent);
  return intents;
}

const create = (keyNumber: number): Parameters<Request['fill']>[0] => ({
  keyNumber,
  operation: 'create',
  order: undefined,
});

const change = (keyNumber: number, id: string): Parameters<Request['fill']>[0] => ({
  keyNumber,
  operation: 'set-status',
  order: { id, dueMs: 0, held: [] },
});

/** Everything that goes out: keys, bodies, retries and schedule. */
function hashOf(changed: Partial<LoadOptions>): string {
  const hash = createHash('sha256');
  const request = createRequest('127.0.0.1:1', options.principalHeader, changed.seed ?? options.seed);
  for (const intent of intentsOf({ durationS: 10, ...changed })) {
    request.fill(intent);
    hash.update(JSON.stringify(intent)).update(request.bytes);
  }
  return hash.digest('hex');
}

test('the same seed gives the same plan, to the byte; another seed another', () => {
  for (const spacing of ['constant', 'jitter', 'poisson'] as const) {
    assert.equal(hashOf({ seed: 1, spacing }), hashOf({ seed: 1, spacing }), spacing);
    assert.notEqual(hashOf({ seed: 1, spacing }), hashOf({ seed: 2, spacing }), spacing);
  }
});

test('a plan made by an earlier version is still the same plan', () => {
  // A change here means that old seeds no longer repeat old runs: say so in the changelog.
  assert.equal(hashOf({ seed: 1 }).slice(0, 16), 'dfc7714328eb1df1');
});

test('the rate counts retries in, and 15 % of the intents are retried 1 to 3 times', () => {
  const intents = intentsOf({ rate: 5_000, durationS: 20 });
  const sends = intents.reduce((sum, { retries }) => sum + 1 + retries, 0);
  assert.ok(Math.abs(sends / 20 - 5_000) < 50, `${sends / 20} requests/s`);
  const retried = intents.filter(({ retries }) => retries > 0);
  assert.ok(Math.abs(retried.length / intents.length - 0.15) < 0.005);
  assert.deepEqual(new Set(retried.map(({ retries }) => retries)), new Set([1, 2, 3]));
  const kinds = new Set(retried.map(({ kind }) => kind));
  assert.deepEqual(kinds, new Set(['at-once', 'after-answer', 'elsewhere', 'cut-sent', 'cut-answer']));
});

test('intents are evenly spaced, or as Poisson has them', () => {
  const gaps = (changed: Partial<LoadOptions>): number[] => {
    const due = intentsOf({ retryRate: 0, rate: 1_000, durationS: 10, ...changed }).map(({ dueMs }) => dueMs);
    return due.slice(1).map((at, index) => at - due[index]!);
  };
  assert.ok(gaps({}).every((gap) => Math.abs(gap - 1) < 1e-6));
  assert.ok(gaps({ spacing: 'jitter' }).every((gap) => gap > 0 && gap < 2));
  const poisson = gaps({ spacing: 'poisson' });
  const mean = poisson.reduce((sum, gap) => sum + gap, 0) / poisson.length;
  const variance = poisson.reduce((sum, gap) => sum + (gap - mean) ** 2, 0) / poisson.length;
  assert.ok(Math.abs(mean - 1) < 0.05 && Math.abs(variance - 1) < 0.1, `mean ${mean}, variance ${variance}`);
});

test('a key that is not retried comes once, and only the first request with a key is its first', () => {
  const intents = intentsOf({ durationS: 20 });
  const first = new Map<number, boolean[]>();
  for (const { keyNumber, firstOfKey } of intents) {
    first.set(keyNumber, [...(first.get(keyNumber) ?? []), firstOfKey]);
  }
  for (const flags of first.values()) assert.deepEqual(flags, [true, ...flags.slice(1).fill(false)]);
  const once = intents.filter(({ retries }) => retries === 0);
  assert.equal(new Set(once.map(({ keyNumber }) => keyNumber)).size, once.length);
  assert.ok(Math.max(...[...first.values()].map(({ length }) => length)) > 100, 'the hottest key is hot');
});

test('attempts keep their key; elsewhere means the next process; all cuts but the last', () => {
  for (const intent of intentsOf({ retryRate: 1, durationS: 2 })) {
    let last = intent;
    for (let more = nextAttempt(last, 5, 2); more; more = nextAttempt(more, 5, 2)) {
      assert.equal(more.keyNumber, intent.keyNumber);
      assert.equal(more.attempt, last.attempt + 1);
      assert.equal(more.target === last.target, intent.kind !== 'elsewhere');
      assert.equal(isCut(last), last.kind.startsWith('cut'));
      last = more;
    }
    assert.equal(last.attempt, intent.retries);
    assert.ok(!isCut(last));
    assert.equal(isConcurrent(intent), intent.kind === 'at-once' || intent.kind === 'elsewhere');
  }
});

test('keys look like UUIDv4, and none is like another, of this seed or the next', () => {
  const keys = new Set<string>();
  for (const seed of [0, 1, 2 ** 32 - 1]) {
    const request = createRequest('127.0.0.1:1', options.principalHeader, seed);
    for (let number = 0; number < 20_000; number++) {
      request.fill(create(number));
      assert.match(request.key(), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
      keys.add(request.key());
    }
  }
  assert.equal(keys.size, 60_000);
});

test('keys with a time look like UUIDv7 that are born from then on, and none is like another', () => {
  const keys = new Set<string>();
  for (const seed of [0, 1, 2 ** 32 - 1]) {
    const request = createRequest('127.0.0.1:1', options.principalHeader, seed, 1_700_000_000_000);
    for (let number = 0; number < 20_000; number++) {
      request.fill(create(number));
      const key = request.key();
      assert.match(key, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
      assert.equal(Number.parseInt(key.slice(0, 8) + key.slice(9, 13), 16), 1_700_000_000_000 + Math.floor(number / 5));
      keys.add(key);
    }
  }
  assert.equal(keys.size, 60_000);
});

test('the request says what it should', () => {
  const request = createRequest('127.0.0.1:1', 'x-tenant: seven', 3);
  request.fill(create(12));
  const [head = '', body = ''] = request.bytes.toString('latin1').split('\r\n\r\n');
  assert.deepEqual(head.split('\r\n'), [
    'POST /orders HTTP/1.1',
    'host: 127.0.0.1:1',
    'x-tenant: seven',
    'content-type: application/json',
    `content-length: ${body.length}`,
    `idempotency-key: ${request.key()}`,
  ]);
  const { accountId: account_id, amountCents: amount_cents } = request;
  assert.deepEqual(JSON.parse(body), { account_id, amount_cents });
});

test('a change of status says what it should', () => {
  const request = createRequest('127.0.0.1:1', 'x-tenant: seven', 3);
  const id = '0198f7a2-1111-7222-8333-444455556666';
  const seen = new Set<string>();
  for (let keyNumber = 0; keyNumber < 100; keyNumber++) {
    request.fill(change(keyNumber, id));
    const [head = '', body = ''] = request.bytes.toString('latin1').split('\r\n\r\n');
    assert.deepEqual(head.split('\r\n'), [
      `POST /orders/${id}/status HTTP/1.1`,
      'host: 127.0.0.1:1',
      'x-tenant: seven',
      'content-type: application/json',
      `content-length: ${body.length}`,
      `idempotency-key: ${request.key()}`,
    ]);
    assert.deepEqual(JSON.parse(body), { status: request.status });
    seen.add(request.status);
  }
  assert.deepEqual([...seen].toSorted(), ['cancelled', 'delivered', 'paid', 'shipped']);
});

test('accounts have 16 digits whatever the seed, one for each number', () => {
  for (const seed of [0, 1, 99, 2 ** 32 - 1]) {
    const request = createRequest('127.0.0.1:1', options.principalHeader, seed);
    const written = [0, 1, 99_999_999, 100_000_000, 2 ** 32 - 2].map((keyNumber) => {
      request.fill(create(keyNumber));
      const [, body = ''] = request.bytes.toString('latin1').split('\r\n\r\n');
      const account = Number(/"account_id":(\d{16}),/.exec(body)?.[1]);
      assert.equal(account, request.accountId);
      assert.ok(Number.isSafeInteger(account));
      return account - 1 - keyNumber;
    });
    assert.equal(new Set(written).size, 1);
    assert.equal(written[0]! % 2 ** 32, 0);
  }
});

test('Zipf: each rank as often as (rank + 1)^-s says', () => {
  for (const [s, size] of [
    [1.1, 1_000_000],
    [1, 1_000],
    [0.5, 100],
    [2, 10],
    [0, 10],
    [1.1, 1],
  ] as const) {
    const draw = zipfFrom(randomFrom(11), size, s);
    const draws = 200_000;
    const counts = new Map<number, number>();
    for (let count = 0; count < draws; count++) {
      const rank = draw();
      assert.ok(Number.isInteger(rank) && rank >= 0 && rank < size);
      counts.set(rank, (counts.get(rank) ?? 0) + 1);
    }
    let total = 0;
    for (let rank = 1; rank <= size; rank++) total += rank ** -s;
    for (const rank of [0, 1, 2, 5, 9].filter((one) => one < size)) {
      const share = (rank + 1) ** -s / total;
      const deviation = Math.sqrt(draws * share * (1 - share));
      const off = Math.abs((counts.get(rank) ?? 0) - draws * share);
      assert.ok(off <= 5 * deviation + 1e-6, `s ${s}, rank ${rank}: ${off / deviation} deviations`);
    }
  }
});

test('every wrong option is named, all at once', () => {
  assert.deepEqual(problemsOf(options), []);
  const wrong = { urls: ['https://a/b'], retryRate: Number.NaN, hot: -1, clients: 0, principalHeader: 'a: b\r\nc: d' };
  const problems = problemsOf({ ...options, ...wrong }).join('\n');
  for (const name of ['url', 'retry-rate', 'hot', 'clients', 'principal-header']) assert.match(problems, RegExp(name));
  assert.match(problemsOf({ ...options, urls: [] }).join(), /a url or a gRPC address/);
  assert.match(
    problemsOf({ ...options, grpc: ['a:1', 'b'], statusRate: 2, settleS: -1 }).join(),
    /gRPC.*status-rate.*settle/,
  );
  assert.match(problemsOf({ ...options, keys: 100 }).join(), /keys is too small/);
});
