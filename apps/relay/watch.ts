import type { Metrics } from '@twiceproof/program/metrics';
import type { RelayPass } from 'twiceproof/relay';

/** While a broker is away every pass fails in the same way; one line a second says so too. */
const quietMs = 1_000;

export interface RelayWatchOptions {
  metrics: Metrics;
  log(line: string): void;
  /** By the clock of the database. A relay that had ended by then can have published nothing that was appended later. */
  startedAtMs: number;
  /** As many messages as it can have held when it ended. */
  maxUnfinished: number;
}

/** What the relay reports goes into the metrics, and troubles to `log`, without a word of any message. */
export function watchRelay({ metrics, log, startedAtMs, maxUnfinished }: RelayWatchOptions) {
  const { total } = metrics;
  const published = total('relay_published_total', 'Messages that the broker has acknowledged.');
  const parked = total('relay_parked_total', 'Messages that were kept aside, because they cannot be published.');
  const republished = total('relay_republished_total', 'Messages that this process has sent once more.');
  const maybe = total(
    'relay_maybe_republished_total',
    'At most so many had been published before, by a relay that ended before this one began.',
  );
  const troubles = metrics.counter('relay_trouble_total', 'Why something had to wait, by the code of the error.', [
    'code',
  ]);
  const stuck = total('relay_stuck_peers_total', 'Connections of other relays that stood still and were ended.');
  const batches = metrics.histogram('relay_batch_messages', 'Messages in a batch.', [], sizes);
  const latency = metrics.histogram('relay_publish_seconds', 'From sending a batch to its last acknowledgement.', []);
  const ages = metrics.histogram(
    'relay_append_to_broker_seconds',
    'From the append of a message to its acknowledgement.',
    [],
  );
  const loggedAt = new Map<string, number>();
  let unfinished = maxUnfinished;
  return {
    pass(seen: RelayPass): void {
      published(seen.acknowledged);
      parked(seen.parked);
      if (seen.parked > 0) {
        const message = `${seen.parked} messages cannot be published, or stand behind such: twiceproof outbox parked`;
        log(JSON.stringify({ level: 'warning', message }));
      }
      republished(seen.republished);
      batches(seen.messages);
      latency(seen.publishMs / 1_000);
      for (const ms of seen.agesMs) ages(ms / 1_000);
      if (unfinished === 0) return;
      const oldEnoughMs = Date.now() - startedAtMs;
      const old = Math.min(seen.agesMs.filter((ms) => ms >= oldEnoughMs).length, unfinished);
      unfinished -= old;
      maybe(old);
    },
    trouble(error: unknown): void {
      const { code, message } = Object(error) as { code?: unknown; message?: unknown };
      const label = typeof code === 'string' && /^\w+$/.test(code) ? code : 'unknown';
      troubles(label);
      if (performance.now() - (loggedAt.get(label) ?? -quietMs) < quietMs) return;
      loggedAt.set(label, performance.now());
      log(JSON.stringify({ level: 'error', code, message: message ?? String(error) }));
    },
    stuck(pid: number): void {
      stuck(1);
      log(JSON.stringify({ level: 'warning', message: `another relay stood still; its connection ${pid} was ended` }));
    },
  };
}

const sizes = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];
