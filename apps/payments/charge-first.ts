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
  charge(tx: Tx, message: ReceivedMessage): Promise<void>;
  observe(pass: ConsumerPass): void;
  onTrouble(error: unknown): void;
}

const waitMs = 1_000;

/**
 * EXPERIMENT: the other order of the two writes. Each message is charged, then the inbox is asked, and if it was no news the
 * charge is taken back. That is as right as the order of the library, because both are in one transaction; it only costs
 * more. It holds nothing and keeps no positions: whatever is not simply new or a duplicate ends it.
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
  const first: ReceivedMessage[] = [];
  for (const message of messages) {
    await tx.query('SAVEPOINT charged');
    await charge(tx, message);
    const verdict = await inbox.accept(tx, { consumer: consumerName, id: message.id, content: contentHash(message) });
    if (verdict === 'first') first.push(message);
    else if (verdict === 'duplicate') await tx.query('ROLLBACK TO SAVEPOINT charged');
    else throw new Error(`${message.id} is ${verdict}, and this experiment has no place to hold it`);
  }
  if (signal.aborted) throw new Error('the lane was taken away: whoever has it now does these');
  return first;
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
