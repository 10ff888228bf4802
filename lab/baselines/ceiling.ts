/**
 * The ceiling: how fast the relay's client publishes when nothing has to be read, called as anybody would call it. The records are ready in memory, of
 * the same form and size; one batch in flight, idempotent, acknowledged by all in-sync replicas.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { EXIT, main, type Context, type FlagSpecs } from '@twiceproof/program';
import { createSender, toMessage, type OutgoingMessage } from './producer.ts';

const flags = {
  brokers: { type: 'string', env: 'KAFKA_BROKERS', help: 'where to publish' },
  topic: { type: 'string', default: 'events', help: 'with three partitions' },
  batch: { type: 'integer', default: 1_000, min: 1, max: 10_000, help: 'records in a batch' },
  rows: { type: 'integer', default: 100_000, min: 1, max: 100_000_000, help: 'records in all' },
} as const satisfies FlagSpecs;

/** So many different ones, used again and again: a million of them would need a gigabyte. */
const differentRecords = 10_000;

await main({ name: 'ceiling', summary: 'Publishes from memory, as fast as the client can.', flags, run });

async function run({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  const { topic, batch, rows } = given;
  const records = Array.from({ length: differentRecords }, (_, n) => record(topic, n));
  const sender = createSender(given.brokers ?? '');
  output.ready({ pid: process.pid });
  try {
    for (let sent = 0; sent < rows && !signal.aborted; sent += batch) {
      const from = sent % differentRecords;
      const count = Math.min(batch, rows - sent);
      const part = records.slice(from, from + count);
      await sender.send(part.length === count ? part : [...part, ...records.slice(0, count - part.length)]);
    }
    // What it has cost can be read only while it lives.
    while (!signal.aborted) await delay(1_000, undefined, { signal }).catch(() => {});
  } finally {
    await sender.close();
  }
  return EXIT.ok;
}

function record(topic: string, n: number): OutgoingMessage {
  const createdAt = new Date().toISOString();
  const event = { at: Date.now() * 1_000, phase: 0, n, status: 'created', note: 'x'.repeat(80) };
  return toMessage({
    topic,
    key: `order-${n}`,
    id: randomUUID(),
    type: 'order.created',
    value: Buffer.from(JSON.stringify(event)),
    createdAt,
    headers: { traceparent: `00-${n.toString(16).padStart(32, '0')}-b7ad6b7169203331-01` },
  });
}
