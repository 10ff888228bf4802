import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { startKafka, type Broker } from '@twiceproof/infra/kafka';
import { kafkaAdmin } from '@twiceproof/infra/testing';
import { assertAllInKeyOrder, numbered, settleUntil, text, until } from '../conformance/transport-kit.ts';
import type { Delivery, OutgoingRecord, Transport } from '../transport.ts';
import { kafkaTransport } from './kafka.ts';

const cluster = await startKafka({ brokers: 3 });
const admin = kafkaAdmin(cluster.bootstrap);
after(async () => {
  await admin.close();
  await cluster.close();
});

const faultsForEachSeed = 8;
const seeds = process.env['TWICEPROOF_SEED'] ? [Number(process.env['TWICEPROOF_SEED'])] : [1, 2, 3];

/** The same seed gives the same faults (mulberry32). */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

const faults: Record<string, (broker: Broker, ms: number) => Promise<void>> = {
  'kill -9': async (broker, ms) => {
    await broker.kill();
    await delay(ms);
    await broker.start();
  },
  freeze: async (broker, ms) => {
    broker.freeze();
    await delay(ms);
    broker.thaw();
  },
  'clean stop': async (broker, ms) => {
    await broker.stop();
    await delay(ms);
    await broker.start();
  },
};

for (const seed of seeds) {
  test(`seed ${seed}: brokers die, freeze and stop, a member comes and goes; nothing acknowledged is missing or out of order`, async (t) => {
    const pick = random(seed);
    const topic = `deep-${seed}`;
    await admin.createTopic(topic, { partitions: 6 });
    const transports: Transport[] = [];
    const transport = (): Transport => {
      transports.push(kafkaTransport({ bootstrap: cluster.bootstrap, publishDeadlineMs: 5_000 }));
      return transports.at(-1)!;
    };
    try {
      const published: OutgoingRecord[] = [];
      const came: Delivery[] = [];
      const seen = new Set<string>();
      let flowing = true;
      const produce = async (): Promise<void> => {
        const publisher = transport().publisher();
        while (flowing)
          published.push(...(await insist(publisher, numbered(topic, 50, { keys: 25, from: published.length }))));
      };
      /** Effects first, then settled. One member stays, the other leaves after a few batches and comes back. */
      const consume = async (staysFor: number): Promise<void> => {
        while (flowing || seen.size < published.length) {
          const member = await transport()
            .subscribe({ group: topic, topics: [topic] })
            .catch(() => undefined);
          for (
            let batches = 0;
            member && batches < staysFor && (flowing || seen.size < published.length);
            batches += 1
          ) {
            const batch = await member.receive({ maxRecords: 200, waitMs: 300 });
            came.push(...(batch?.deliveries ?? []));
            for (const delivery of batch?.deliveries ?? []) seen.add(text(delivery));
            if (batch) await member.settle(batch.deliveries);
          }
          await member?.close();
        }
      };
      const flows = Promise.all([produce(), consume(Infinity), consume(40)]);
      for (let n = 0; n < faultsForEachSeed; n += 1) {
        const kind = Object.keys(faults)[pick(3)]!;
        const broker = cluster.brokers[pick(3)]!;
        t.diagnostic(`${kind} of broker ${broker.id}, ${published.length} published`);
        await faults[kind]!(broker, 500 + pick(8_000));
        const before = published.length;
        await until('records flow again', () => published.length > before + 200);
      }
      flowing = false;
      await flows;
      // What two members saw side by side has no common order; what each key's log holds has.
      assert.deepEqual([...seen].toSorted(), published.map(({ value }) => Buffer.from(value).toString()).toSorted());
      const reader = await transport().subscribe({ group: `${topic}-reader`, topics: [topic] });
      const inLog = new Set<string>();
      let counted = 0;
      const log = await settleUntil(reader, (settled) => {
        // Each once: a quarter of a million of them, all counted anew for each batch, took longer than reading them.
        for (; counted < settled.length; counted += 1) inLog.add(text(settled[counted]!));
        return inLog.size >= published.length;
      });
      assertAllInKeyOrder(published, log);
      t.diagnostic(
        `${published.length} acknowledged, ${log.length - published.length} of them twice in the log, ${came.length - seen.size} received again`,
      );
    } finally {
      await Promise.all(transports.map(async (each) => each.close()));
    }
  });
}

/** Until all are acknowledged; answers them. */
async function insist(
  publisher: ReturnType<Transport['publisher']>,
  records: OutgoingRecord[],
): Promise<OutgoingRecord[]> {
  for (let open = records; open.length > 0;) {
    const outcomes = await publisher.publish(open);
    open = open.filter((_, index) => outcomes[index]!.outcome !== 'acknowledged');
  }
  return records;
}
