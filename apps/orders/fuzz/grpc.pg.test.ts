import assert from 'node:assert/strict';
import { test } from 'node:test';
import { testDatabase } from '@twiceproof/infra/testing';
import { nextGrpcCase, type GrpcCase, type Known } from './grpc-cases.ts';
import { openGrpc, type CallResult } from './grpc-client.ts';
import { documentedProblems } from './judge.ts';
import { createLedger } from './ledger.ts';
import { randomFrom, seedOf } from './random.ts';
import { underWatch } from './run.ts';

const { url } = await testDatabase();
const seed = seedOf();
const calls = 2_000;
const atOnce = 16;

/** Statuses that say that something is wrong here, and not with the client. */
const ours = new Map([
  [2, 'UNKNOWN'],
  [13, 'INTERNAL'],
  [14, 'UNAVAILABLE'],
  [15, 'DATA_LOSS'],
]);

test(`seed ${seed}: 2,000 calls, most of them nasty: never INTERNAL, and never a query for what is refused`, async (context) => {
  const random = randomFrom(seed);
  const ledger = createLedger();
  const counts = new Map<string, number>();
  const failures = new Map<string, string>();
  const known: Known[] = [];
  let unanswered = 0;

  function hear({ expected }: GrpcCase, { http, status, problem, data }: CallResult): void {
    if (http === undefined && status === undefined) {
      assert.notEqual(expected.kind, 'wanted');
      unanswered += 1;
      return;
    }
    assert.ok(http !== undefined && http < 500);
    assert.ok(status === undefined || !ours.has(status), ours.get(status ?? 0));
    assert.ok(problem === undefined || [...documentedProblems, 'order-unknown'].includes(problem));
    const orderId = /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/.exec(data.toString('latin1'))?.[0];
    if (status === 0 && orderId) ledger.promised(orderId);
    if (expected.kind === 'refused') assert.notEqual(status, 0);
    if (expected.kind !== 'wanted') return;
    if (problem === 'key-reused') return ledger.reused(expected.wanted);
    assert.ok(status === 0 || problem === 'order-unknown');
    if (orderId) known.push({ tenant: expected.wanted.tenant, orderId });
    ledger.done(expected.wanted, `${status} ${data.toString('hex')}`, status === 0);
  }

  const summary = await underWatch(url, async (programs, pool) => {
    let made = 0;
    const worker = async (address: string): Promise<void> => {
      const connection = openGrpc(address);
      for (; made < calls;) {
        made += 1;
        const one = nextGrpcCase(random, known);
        const result = await connection.call(one.call);
        const count = result.status === undefined ? `HTTP ${result.http}` : `status ${result.status}`;
        counts.set(count, (counts.get(count) ?? 0) + 1);
        try {
          hear(one, result);
        } catch (error) {
          failures.set(one.about, `${one.about}: ${String(error)} ${JSON.stringify(result)}`);
        }
      }
      await connection.close();
    };
    await Promise.all(Array.from({ length: atOnce }, async (_, n) => worker(programs[n % programs.length]!.grpc)));
    assert.equal(failures.size, 0, [...failures.values()].slice(0, 20).join('\n'));
    await ledger.compare(pool, unanswered);
    return [...counts]
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, count]) => `${count} x ${name}`)
      .join(', ');
  });
  context.diagnostic(`${calls} calls: ${summary}`);
});
