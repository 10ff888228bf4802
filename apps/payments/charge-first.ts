import type pg from 'pg';
import type { ConsumerPass } from 'twiceproof/consumer';
import { contentHash, createInbox } from 'twiceproof/inbox';
import { transaction } from 'twiceproof/transaction';
import type { Batch, Delivery, Transport } from 'twiceproof/transport';
import type { Tx } from 'twiceproof/tx';
import { fromDelivery, type ReceivedMessage } from 'twiceproof/wire';
import { consumerName } from './charges.ts';

export interface ChargeFirstOptions {
  pool: pg.Pool;
  transport: Transport;
  group: string;
  topics: readonly string[];
  batch: number;
  charge(tx: Tx, messages: readonly ReceivedMessage[]): Promise<void>;
  observe(pass: ConsumerPass): void;
  onTrouble(error: unknown): void;
}

const waitMs = 1_000;

/**
 * EXPERIMENT: the other order of the two writes. A batch is charged, then the inbox is asked, and if not all of it was news
 * both are taken back and done again for what was. That is as right as the order of the library, because both are in
 * one transaction; it only costs more. It holds nothing and keeps no positions: whatever is not simply new or a duplicate ends it.
 */
export async function chargeFirst(options: ChargeFirstOptions, stopping: AbortSignal): Promise<void> {
  const { pool, transport, group, topics, batch: maxRecords, observe, onTrouble } = options;
  const subscription = await transport.subscribe({ group, topics, onTrouble });
  try {
    while (!stopping.aborted) {
      const batch = await subscription.receive({ maxRecords, waitMs, signal: stopping });
      if (!batch) continue;
      const began = performance.now();
      const messages = batch.deliveries.map(readable);
      const first = await transaction(pool, async (tx) => newOf(tx, messages, batch, options));
      observe(passOf(batch, first, performance.now() - began));
      await subscription.settle(batch.deliveries);
    }
  } finally {
    await subscription.close();
  }
}

async function newOf(
  tx: Tx,
  messages: readonly ReceivedMessage[],
  { signal }: Batch,
  { charge }: ChargeFirstOptions,
): Promise<ReceivedMessage[]> {
  const inbox = createInbox();
  let news = messages;
  await tx.query('SAVEPOINT nothing');
  // Each time with fewer, since another consumer may have been faster with some of what was news a moment ago.
  for (;;) {
    await charge(tx, news);
    const arrived = news.map((message) => ({ id: message.id, content: contentHash(message) }));
    const verdicts = await inbox.acceptAll(tx, consumerName, arrived);
    const odd = verdicts.findIndex((verdict) => verdict !== 'first' && verdict !== 'duplicate');
    if (odd >= 0) throw new Error(`${news[odd]!.id} is ${verdicts[odd]}, and this experiment has no place to hold it`);
    const first = news.filter((_, n) => verdicts[n] === 'first');
    if (first.length === news.length) break;
    await tx.query('ROLLBACK TO SAVEPOINT nothing');
    news = first;
  }
  if (signal.aborted) throw new Error('the lane was taken away: whoever has it now does these');
  return [...news];
}

function readable(delivery: Delivery): ReceivedMessage {
  const message = fromDelivery(delivery);
  if ('problem' in message) throw new Error(`a record cannot be read: ${message.problem}`);
  return message;
}

function passOf({ lane, deliveries }: Batch, first: readonly ReceivedMessage[], tookMs: number): ConsumerPass {
  const now = Date.now();
  return {
    lanes: [lane],
    received: deliveries.length,
    first: first.length,
    duplicates: deliveries.length - first.length,
    held: {},
    ranLate: 0,
    transactions: 1,
    tookMs,
    agesMs: first.flatMap(({ createdAt }) => (createdAt ? [now - createdAt.getTime()] : [])),
  };
}
