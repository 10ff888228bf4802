import assert from 'node:assert/strict';
import { test } from 'node:test';
import { redeliveryHorizon, requireTtl } from './horizon.ts';

const hourMs = 3_600_000;
const broker = {
  retentionMs: 168 * hourMs,
  segmentMs: 24 * hourMs,
  checkIntervalMs: hourMs / 12,
  offsetsRetentionMs: 168 * hourMs,
};

test('the wait in the outbox, then the longest way back, then a margin for clocks', () => {
  const { horizonMs, why } = redeliveryHorizon(broker, { outboxWaitMs: 2 * hourMs, clockMarginMs: hourMs });
  // Whole segments go, by their newest record, when the broker looks.
  assert.equal(horizonMs, 195 * hourMs + 300_000);
  assert.match(why, /2 h in the outbox .*\(168 h retention \+ 24 h segment .* 1 h for clocks/);
  assert.equal(redeliveryHorizon(broker).horizonMs, 216 * hourMs + 900_000);
});

test('a group that the broker remembers for longer, or operators who replay further back, count', () => {
  const none = { outboxWaitMs: 0, clockMarginMs: 0 };
  const short = { ...broker, retentionMs: hourMs, segmentMs: hourMs };
  assert.equal(redeliveryHorizon(short, none).horizonMs, 168 * hourMs);
  assert.equal(redeliveryHorizon(short, { ...none, replayWindowMs: 720 * hourMs }).horizonMs, 720 * hourMs);
});

test('a topic that keeps all is refused, unless it is said how far back operators may replay', () => {
  for (const retentionMs of [Infinity, -1]) {
    assert.throws(() => redeliveryHorizon({ ...broker, retentionMs }), { code: 'TP_HORIZON', message: /for ever/ });
    const { horizonMs, why } = redeliveryHorizon({ ...broker, retentionMs }, { replayWindowMs: 1_000 * hourMs });
    assert.equal(horizonMs, 1_024 * hourMs + 600_000);
    assert.match(why, /kept for ever/);
  }
});

test('to remember for less long than the horizon is refused, with the reason', () => {
  const horizon = redeliveryHorizon(broker);
  requireTtl(horizon.horizonMs, horizon);
  for (const ttlMs of [horizon.horizonMs - 1, 0, Number.NaN]) {
    assert.throws(() => requireTtl(ttlMs, horizon), { code: 'TP_HORIZON', message: /168 h retention/ });
  }
  // Whatever the broker did not say must not become a horizon of nothing.
  assert.throws(() => requireTtl(1e15, redeliveryHorizon({ ...broker, segmentMs: Number.NaN })), {
    code: 'TP_HORIZON',
  });
});
