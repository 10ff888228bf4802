import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import type { Metrics } from '@twiceproof/program/metrics';

const lookEveryMs = 1_000;

/**
 * Where each shard is, and whether it has something to publish. ORDER BY makes the planner go through the index: of a
 * mere EXISTS it believes that the first rows of the log will do, and then reads all of it when there is nothing.
 */
const places = `SELECT c.shard, concat_ws(' ', c.prev, c.cur, c.last_id) AS place,
    c.cur IS NOT NULL OR newer.id IS NOT NULL OR late.id IS NOT NULL AS waits
  FROM twiceproof.relay_cursor c
  LEFT JOIN LATERAL (
    SELECT o.id FROM twiceproof.outbox o WHERE o.shard = c.shard AND o.xid >= pg_snapshot_xmax(c.prev)
    ORDER BY o.xid, o.id LIMIT 1) AS newer ON true
  LEFT JOIN LATERAL (
    SELECT one.id FROM pg_snapshot_xip(c.prev) AS x, LATERAL (
      SELECT o.id FROM twiceproof.outbox o WHERE o.shard = c.shard AND o.xid = x ORDER BY o.id LIMIT 1) AS one
    LIMIT 1) AS late ON true`;

interface Place {
  shard: number;
  place: string;
  waits: boolean;
}

export interface Stalled {
  shard: number;
  ms: number;
}

export interface ShardWatch {
  run(signal: AbortSignal): Promise<void>;
  /** The shard that has been standing still for the longest time, although it has something to publish. */
  stalled(): Stalled | undefined;
}

/** Goes by the cursors, so that what another relay publishes counts as well. */
export function watchShards(metrics: Metrics, pool: pg.Pool): ShardWatch {
  let seen = new Map<number, { place: string; since: number }>();
  let worst: Stalled | undefined;
  metrics.gauge(
    'relay_stalled_seconds',
    'For how long the slowest shard has not moved although messages wait.',
    () => worst && worst.ms / 1_000,
  );

  async function look(): Promise<void> {
    const { rows } = await pool.query<Place>(places);
    const now = performance.now();
    seen = new Map(
      rows.map(({ shard, place, waits }) => {
        const before = seen.get(shard);
        const isStill = waits && before?.place === place;
        return [shard, { place, since: isStill ? before.since : now }];
      }),
    );
    worst = [...seen]
      .map(([shard, { since }]) => ({ shard, ms: now - since }))
      .reduce((most, each) => (each.ms > most.ms ? each : most), { shard: -1, ms: 0 });
  }

  return {
    stalled: () => worst,
    run: async (signal) => {
      while (!signal.aborted) {
        try {
          await look();
        } catch {
          // While the database is away nothing can be said, and nothing is the shard's fault.
          seen = new Map();
          worst = undefined;
        }
        await delay(lookEveryMs, undefined, { signal }).catch(() => {});
      }
    },
  };
}
