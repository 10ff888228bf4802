import assert from 'node:assert/strict';
import { appendFile } from 'node:fs/promises';
import { after, test } from 'node:test';
import type pg from 'pg';
import { court, found } from './judge-under-test.ts';
import { addOrder, answerLine, callLine, emptyRun, ledgerHead, type Call, type Run } from './run-under-test.ts';
import { openProducer, produce, withLedger, writeOrders, writePayments, type Place } from './world-under-test.ts';

const { emptyPlace, verdict, close } = await court();
after(close);

test('a system that works while it is read raises no alarm', async () => {
  const place = await emptyPlace();
  await withLedger(ledgerHead, async (path) => {
    const looks: object[] = [];
    const over = new AbortController();
    const working = await work(place, path, over.signal);
    try {
      for (let look = 0; look < 6; look += 1) {
        const report = await verdict('', place, { ledgers: [path], horizonMs: 30_000 });
        const { parked: _, ...rest } = found(report);
        looks.push({
          ...rest,
          reasons: report.reasons.filter((reason) => !reason.startsWith('sorting: there are no')),
        });
      }
    } finally {
      over.abort();
    }
    const made = await working.ended;
    assert.deepEqual(
      looks,
      Array.from({ length: 6 }, () => ({ reasons: [] })),
    );
    const drained = await verdict('', place, { ledgers: [path] });
    assert.deepEqual([drained.verdict, drained.reasons, found(drained)], ['clean', [], {}]);
    assert.equal(drained.counts['orders'], made);
    assert.ok(made > 6, `only ${made} orders while it looked`);
  });
});

/**
 * Each order goes its way, as in the real system: a line before it is sent, order and outbox row in one transaction, the
 * record, inbox row and effects in one transaction, and then the answer. Between them orders that were parked long ago
 * are released, wherever the judge may be at that moment. In the end it answers how many orders there were.
 */
async function work(place: Place, ledger: string, signal: AbortSignal): Promise<{ ended: Promise<number> }> {
  const producer = openProducer(place.brokers);
  let made = 0;
  let lines = 0;
  const begin = async (parked: boolean): Promise<Order> => {
    const n = made++;
    const run = emptyRun();
    addOrder(run, 7 * 2 ** 32 + n + 1, n, false);
    if (parked) run.parked = run.outbox.map(({ msg_id, order_id }) => ({ msg_id, order_id }));
    else for (const row of run.outbox) row.created_at = new Date();
    const calls = run.calls.map((call) => ({ number: lines++, call }));
    await appendFile(ledger, calls.map(({ number, call }) => callLine(number, call)).join(''));
    await inTransaction(place.orders, async (tx) => writeOrders(run, tx, place.topic));
    return { run, calls };
  };
  const finish = async ({ run, calls }: Order): Promise<void> => {
    for (const record of run.records) record.atMs = Date.now();
    await inTransaction(place.orders, async (tx) => {
      await tx.query('DELETE FROM twiceproof.relay_parked WHERE msg_id = ANY ($1)', [
        run.outbox.map((row) => row.msg_id),
      ]);
      await produce(producer, place.topic, run.records);
    });
    await inTransaction(place.payments, async (tx) => writePayments(run, tx, place.topic));
    for (const { call } of calls) call.answer!.agoMs = 0;
    await appendFile(ledger, calls.map(({ number, call }) => answerLine(number, call)).join(''));
  };
  // Before anything is answered nothing can be said, and that is said.
  await finish(await begin(false));
  const waiting: Order[] = [];
  for (let n = 0; n < parkedAtFirst; n += 1) waiting.push(await begin(true));
  const lane = async (): Promise<void> => {
    while (!signal.aborted) {
      const released = waiting.pop();
      if (released) await finish(released);
      await finish(await begin(false));
    }
  };
  const all = async (): Promise<number> => {
    try {
      await Promise.all([lane(), lane()]);
      for (const left of waiting) await finish(left);
      return made;
    } finally {
      await producer.close();
    }
  };
  return { ended: all() };
}

const parkedAtFirst = 60;

interface Order {
  run: Run;
  calls: { number: number; call: Call }[];
}

async function inTransaction(pool: pg.Pool, use: (tx: pg.PoolClient) => Promise<void>): Promise<void> {
  const tx = await pool.connect();
  try {
    await tx.query('BEGIN');
    await use(tx);
    await tx.query('COMMIT');
  } finally {
    tx.release();
  }
}
