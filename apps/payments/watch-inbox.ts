import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import type { Metrics } from '@twiceproof/program/metrics';
import { createHeld } from 'twiceproof/inbox/held';
import { consumerName } from './charges.ts';
import type { Retention } from './retention.ts';

const lookEveryMs = 1_000;

export interface InboxWatchOptions {
  metrics: Metrics;
  pool: pg.Pool;
  retention: Retention;
  oldestUnderWayMs(): number;
}

/** What is so at the moment; a value that nobody knows is missing. */
export async function watchInbox(options: InboxWatchOptions, signal: AbortSignal): Promise<void> {
  const { metrics, pool, retention } = options;
  const held = createHeld();
  let known: { floorAgeMs?: number; held?: number } = {};
  const { gauge } = metrics;
  gauge('payments_horizon_seconds', 'How old a message can be when it comes again.', () => retention.horizonMs / 1_000);
  gauge('payments_dedup_ttl_seconds', 'How long ids are remembered.', () => retention.ttlMs / 1_000);
  gauge('payments_inbox_floor_age_seconds', 'Age of the oldest id that is remembered.', () =>
    inSeconds(known.floorAgeMs),
  );
  gauge('payments_held_messages', 'Messages that wait for a person now.', () => known.held);
  gauge(
    'payments_stalled_seconds',
    'For how long the oldest batch has been under way.',
    () => options.oldestUnderWayMs() / 1_000,
  );
  while (!signal.aborted) {
    try {
      const { rows } = await pool.query<{ now: number; floor: string }>(
        'SELECT extract(epoch FROM clock_timestamp())::float8 * 1000 AS now, floor FROM twiceproof.inbox_bounds',
      );
      const counts = await held.counts(pool, consumerName);
      known = {
        ...(rows[0] && { floorAgeMs: rows[0].now - timeOf(rows[0].floor) }),
        held: [...counts.values()].reduce((sum, count) => sum + count, 0),
      };
    } catch {
      known = {};
    }
    await delay(lookEveryMs, undefined, { signal }).catch(() => {});
  }
}

function inSeconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms / 1_000;
}

/** An id begins with its time. */
function timeOf(id: string): number {
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
}
