import type { Metrics } from '@twiceproof/program/metrics';
import type { ConsumerPass } from 'twiceproof/consumer';
import type { ChargeCounts } from './charges.ts';

/** While the database is away every attempt fails in the same way; one line a second says so too. */
const quietMs = 1_000;

export interface PaymentsWatch extends ChargeCounts {
  pass(seen: ConsumerPass): void;
  trouble(error: unknown): void;
  injected(count: number): void;
}

/** What the consumer reports goes into the metrics, and troubles to `log`, without a word of any message. */
export function watchPayments(metrics: Metrics, log: (line: string) => void): PaymentsWatch {
  const { counter, total, histogram } = metrics;
  const messages = counter('payments_messages_total', 'Messages by what the inbox said of them.', ['verdict']);
  const held = counter('payments_held_total', 'Messages that were held for a person, by the reason.', ['kind']);
  const charged = total('payments_charges_total', 'Charges that were written, those of transactions that failed too.');
  const ignored = total('payments_ignored_total', 'Messages of a type that is none of ours.');
  const injected = total('payments_injected_total', 'Deliveries that --dup-rate has added.');
  const transactions = total('payments_transactions_total', 'Transactions, those that failed too.');
  const troubles = counter('payments_trouble_total', 'Why something had to wait, by the code of the error.', ['code']);
  const batches = histogram('payments_batch_messages', 'Messages in a batch.', [], sizes);
  const durations = histogram('payments_batch_seconds', 'From a received batch to its commit.', []);
  const ages = histogram('payments_commit_to_effect_seconds', "From a message's ce_time to the commit here.", []);
  const loggedAt = new Map<string, number>();
  const times = (count: number, what: () => void): void => {
    for (let n = 0; n < count; n += 1) what();
  };
  return {
    charged,
    ignored,
    injected,
    pass(seen) {
      times(seen.first, () => messages('first'));
      times(seen.duplicates, () => messages('duplicate'));
      times(seen.ranLate, () => messages('late'));
      for (const [kind, count] of Object.entries(seen.held)) times(count, () => held(kind));
      transactions(seen.transactions);
      batches(seen.received);
      durations(seen.tookMs / 1_000);
      for (const ms of seen.agesMs) ages(ms / 1_000);
    },
    trouble(error) {
      const { code, message } = Object(error) as { code?: unknown; message?: unknown };
      const label = typeof code === 'string' && /^\w+$/.test(code) ? code : 'unknown';
      troubles(label);
      if (performance.now() - (loggedAt.get(label) ?? -quietMs) < quietMs) return;
      loggedAt.set(label, performance.now());
      log(JSON.stringify({ level: 'error', code, message: message ?? String(error) }));
    },
  };
}

const sizes = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];
