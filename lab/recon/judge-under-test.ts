/** A judge, and two databases and topics for it. Call it once, at the top of a test file. */
import { testDatabase, testKafka } from '@twiceproof/infra/testing';
import pg from 'pg';
import { noConfig } from './config.ts';
import { deltas, type Delta } from './invariants.ts';
import { reconcile, type ReconOptions, type Report } from './recon.ts';
import { partitions, type Run } from './run-under-test.ts';
import { migrate, withLedger, write, type Place } from './world-under-test.ts';

export interface Court {
  ordersUrl: string;
  paymentsUrl: string;
  brokers: string;
  /** Tables and a topic that hold nothing. */
  emptyPlace(): Promise<Place>;
  /** Writes the runs to an empty place, and has the ledger of the first judged. */
  judged(runs: readonly Run[], options?: Partial<ReconOptions>): Promise<Report>;
  /** What is said of this ledger and what is there. */
  verdict(ledger: string, place: Place, options?: Partial<ReconOptions>): Promise<Report>;
  close(): Promise<void>;
}

export async function court(): Promise<Court> {
  const [ordersUrl, paymentsUrl] = [(await testDatabase()).url, (await testDatabase()).url];
  const kafka = await testKafka();
  await migrate(ordersUrl, paymentsUrl);
  const orders = new pg.Pool({ connectionString: ordersUrl, max: 2 });
  const payments = new pg.Pool({ connectionString: paymentsUrl, max: 2 });
  const emptyPlace = async (): Promise<Place> => {
    await orders.query(
      'TRUNCATE orders, twiceproof.outbox, twiceproof.relay_parked, twiceproof.idempotency_keys RESTART IDENTITY',
    );
    await payments.query('TRUNCATE charges, effects, order_states, twiceproof.inbox, twiceproof.held RESTART IDENTITY');
    const topic = await kafka.createTopic('events', { partitions });
    return { orders, payments, brokers: kafka.bootstrap, topic };
  };
  const verdict: Court['verdict'] = async (ledger, { topic }, options = {}) =>
    withLedger(ledger, async (path) =>
      reconcile({
        ledgers: [path],
        databaseUrl: ordersUrl,
        paymentsUrl,
        brokers: kafka.bootstrap,
        topics: [topic],
        config: noConfig,
        signal: AbortSignal.timeout(60_000),
        ...options,
      }),
    );
  return {
    ordersUrl,
    paymentsUrl,
    brokers: kafka.bootstrap,
    emptyPlace,
    verdict,
    close: async () => {
      await Promise.all([orders.end(), payments.end()]);
    },
    judged: async (runs, options) => {
      const place = await emptyPlace();
      const ledgers: string[] = [];
      for (const run of runs) ledgers.push(await write(run, place));
      return verdict(ledgers[0]!, place, options);
    },
  };
}

/** Only what is not as it should be. */
export function found({ deltas: all }: Report): Partial<Record<Delta, string[]>> {
  return Object.fromEntries(deltas.flatMap((delta) => (all[delta]?.count ? [[delta, all[delta].ids]] : [])));
}
