import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { testKafka } from '@twiceproof/infra/testing';
import { testTransport } from '../conformance/transport.ts';
import type { TwiceproofError } from '../errors.ts';
import type { AssignedLane, Transport } from '../transport.ts';
import { kafkaTransport, type KafkaTransportOptions } from './kafka.ts';

const kafka = await testKafka();

testTransport(
  'kafka',
  {
    createTopic: ({ partitions, maxMessageBytes }) =>
      kafka.createTopic('conformance', {
        partitions,
        ...(maxMessageBytes && { config: { 'max.message.bytes': String(maxMessageBytes) } }),
      }),
    group: () => kafka.group('conformance'),
    transport: (options) => kafkaTransport({ bootstrap: kafka.bootstrap, ...options }),
    doomedMember: spawnMember,
  },
  'healthy',
);

/** Settles its batch when it is told to, and says what came of it. */
const memberProgram = `
  import { kafkaTransport } from ${JSON.stringify(new URL('kafka.ts', import.meta.url).href)};
  const { bootstrap, group, topic } = JSON.parse(process.argv[1]);
  const subscription = await kafkaTransport({ bootstrap }).subscribe({ group, topics: [topic] });
  const { deliveries } = await subscription.receive({ maxRecords: 500, waitMs: 30_000 });
  console.log('holds', deliveries.length);
  process.stdin.once('data', async () => console.log(await subscription.settle(deliveries)));
`;

/** In another process, because only a process can die, or stand still, without a word. */
async function spawnMember(options: { group: string; topic: string }) {
  const settings = JSON.stringify({ bootstrap: kafka.bootstrap, ...options });
  const child = spawn(process.execPath, ['--input-type=module', '--eval', memberProgram, settings], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  const nextLine = async (): Promise<string> => {
    const [chunk] = (await Promise.race([once(child.stdout, 'data'), exited])) as [unknown];
    return String(chunk).trim();
  };
  assert.match(await nextLine(), /^holds [1-9]/);
  const kill = async (): Promise<void> => {
    child.kill('SIGKILL');
    await exited;
  };
  return {
    kill,
    [Symbol.asyncDispose]: kill,
    freeze: () => child.kill('SIGSTOP'),
    thaw: () => child.kill('SIGCONT'),
    async settle() {
      child.stdin.write('settle\n');
      return await nextLine();
    },
  };
}

/** Closed before the leak check looks, whatever comes of the test. */
async function withTransport(
  options: Partial<KafkaTransportOptions>,
  body: (transport: Transport) => Promise<void>,
): Promise<void> {
  const transport = kafkaTransport({ bootstrap: kafka.bootstrap, ...options });
  try {
    await body(transport);
  } finally {
    await transport.close();
  }
}

test('a member that stood still for longer than its session cannot settle, nor set the group back', async () => {
  const topic = await kafka.createTopic('zombie');
  const group = kafka.group('zombie');
  await withTransport({}, async (transport) => {
    const record = { topic, key: 'k', value: Buffer.from('v') };
    await transport.publisher().publish([record, record, record]);
    await using zombie = await spawnMember({ group, topic });
    zombie.freeze();
    const heir = await transport.subscribe({ group, topics: [topic] });
    const batch = await heir.receive({ maxRecords: 10, waitMs: 20_000 });
    assert.equal(batch?.deliveries.length, 3);
    assert.equal(await heir.settle(batch.deliveries), 'settled');
    zombie.thaw();
    assert.equal(await zombie.settle(), 'stale');
    await zombie.kill();
    await heir.close();

    let committed: bigint | undefined;
    await transport.subscribe({
      group,
      topics: [topic],
      onAssigned: async ([lane]) => {
        committed = lane?.committed;
        return [];
      },
    });
    assert.equal(committed, 3n);
  });
});

test('a member that computes for so long that its session is in danger is told so, and goes on', async () => {
  const topic = await kafka.createTopic('busy');
  await withTransport({}, async (transport) => {
    const troubles: string[] = [];
    const group = kafka.group('busy');
    const onTrouble = ({ code }: TwiceproofError): number => troubles.push(code);
    const subscription = await transport.subscribe({ group, topics: [topic], onTrouble });
    for (const until = performance.now() + 4_500; performance.now() < until;);
    await transport.publisher().publish([{ topic, key: 'k', value: Buffer.from('v') }]);
    const batch = await subscription.receive({ maxRecords: 1, waitMs: 20_000 });
    assert.equal(batch?.deliveries.length, 1);
    // Others may follow from it: what was asked of a broker meanwhile is late.
    assert.ok(troubles.includes('TP_STOOD_STILL'), troubles.join());
  });
});

test('a batch that takes longer than the session is still ours, and is settled', async () => {
  const topic = await kafka.createTopic('slow', { partitions: 1 });
  await withTransport({}, async (transport) => {
    const group = kafka.group('slow');
    await transport.publisher().publish([{ topic, key: 'k', value: Buffer.from('v') }]);
    let revoked = 0;
    const onRevoked = async (): Promise<void> => {
      revoked += 1;
    };
    const slow = await transport.subscribe({ group, topics: [topic], onRevoked });
    const batch = await slow.receive({ maxRecords: 1, waitMs: 20_000 });
    // Nobody calls receive meanwhile; the heartbeats do not depend on it.
    await delay(7_500);
    assert.equal(batch!.signal.aborted, false);
    assert.equal(revoked, 0);
    assert.equal(await slow.settle(batch!.deliveries), 'settled');
  });
});

test('partitions that are added are read from their beginning, and what was settled does not come again', async () => {
  const topic = await kafka.createTopic('grown', { partitions: 1 });
  await withTransport({}, async (transport) => {
    const record = (key: string) => ({ topic, key, value: Buffer.from(key) });
    await transport.publisher().publish([record('before')]);
    const subscription = await transport.subscribe({ group: kafka.group('grown'), topics: [topic] });
    const first = await subscription.receive({ maxRecords: 10, waitMs: 20_000 });
    assert.equal(await subscription.settle(first!.deliveries), 'settled');
    await kafka.admin.addPartitions(topic, 3);
    // Until the brokers say so to a publisher that has just asked them.
    const keys: string[] = [];
    const used = new Set<number>();
    const publishedBy = performance.now() + 20_000;
    for (let round = 0; used.size < 3 && performance.now() < publishedBy; round += 1) {
      const some = Array.from({ length: 30 }, (_, n) => `after-${round}-${n}`);
      await withTransport({}, async (fresh) => {
        const outcomes = await fresh.publisher().publish(some.map(record));
        // A new partition may have no leader for a moment: what is not acknowledged is no part of this.
        for (const [n, each] of outcomes.entries()) {
          if (each.outcome !== 'acknowledged') continue;
          keys.push(some[n]!);
          used.add(each.position!.partition);
        }
      });
    }
    assert.deepEqual(used, new Set([0, 1, 2]));
    const seen: string[] = [];
    for (const deadline = performance.now() + 90_000; seen.length < keys.length && performance.now() < deadline;) {
      const batch = await subscription.receive({ maxRecords: 100, waitMs: 1_000 });
      if (!batch || (await subscription.settle(batch.deliveries)) === 'stale') continue;
      seen.push(...batch.deliveries.map(({ value }) => String(value)));
    }
    // What was not acknowledged may have been written all the same.
    assert.deepEqual(
      keys.filter((key) => !seen.includes(key)),
      [],
    );
    assert.equal(new Set(seen).size, seen.length, 'none comes again');
  });
});

test('offsets that may wait are told at the latest when the group is left', async () => {
  const topic = await kafka.createTopic('lazily');
  await withTransport({}, async (transport) => {
    await transport.publisher().publish([{ topic, key: 'k', value: Buffer.from('x') }]);
    let committed: bigint | undefined;
    const onAssigned = async ([lane]: readonly AssignedLane[]): Promise<never[]> => {
      committed = lane?.committed;
      return [];
    };
    const join = { group: kafka.group('lazily'), topics: [topic], offsetsEveryMs: 3_600_000, onAssigned };
    const first = await transport.subscribe(join);
    const batch = await first.receive({ maxRecords: 1, waitMs: 10_000 });
    assert.equal(await first.settle(batch!.deliveries), 'settled');
    await first.close();
    assert.equal(committed, undefined);
    await (await transport.subscribe(join)).close();
    assert.equal(committed, 1n);
  });
});

test('a topic that is made anew is recognised by its id and read from its start', async () => {
  const topic = await kafka.createTopic('anew');
  const publish = async (transport: Transport, text: string): Promise<void> => {
    const [outcome] = await transport.publisher().publish([{ topic, key: 'k', value: Buffer.from(text) }]);
    assert.equal(outcome!.outcome, 'acknowledged');
  };
  await withTransport({}, async (transport) => {
    const topicIds: string[] = [];
    const subscription = await transport.subscribe({
      group: kafka.group('anew'),
      topics: [topic],
      onAssigned: async (lanes) => {
        topicIds.push(...lanes.map(({ topicId }) => topicId));
        return [];
      },
    });
    await publish(transport, 'of the first');
    const first = await subscription.receive({ maxRecords: 10, waitMs: 10_000 });
    assert.equal(await subscription.settle(first!.deliveries), 'settled');
    await kafka.admin.deleteTopics(topic);
    await kafka.admin.createTopic(topic, { partitions: 1 });
    await publish(transport, 'of the second');
    const second = await subscription.receive({ maxRecords: 10, waitMs: 20_000 });
    assert.equal(String(second?.deliveries[0]?.value), 'of the second');
    assert.deepEqual(second!.deliveries[0]!.position, { topic, partition: 0, offset: 0n });
    assert.equal(new Set(topicIds).size, 2);
  });
});

test('a record above maxRecordBytes is rejected without asking the broker', async () => {
  const topic = await kafka.createTopic('large');
  await withTransport({ maxRecordBytes: 1000 }, async (transport) => {
    const outcomes = await transport.publisher().publish([
      { topic, key: 'k', value: Buffer.alloc(2000) },
      { topic, key: 'other', value: Buffer.alloc(100) },
    ]);
    assert.deepEqual(
      outcomes.map(({ outcome }) => outcome),
      ['rejected', 'acknowledged'],
    );
  });
});

test('brokers that are not there are said to be unreachable, in bounded time', async () => {
  await withTransport({ bootstrap: '127.0.0.1:1' }, async (transport) => {
    const subscribing = transport.subscribe({ group: 'nobody', topics: ['nothing'] });
    await assert.rejects(subscribing, { code: 'TP_BROKER_UNREACHABLE' });
    await assert.rejects(transport.topicTimes!(['nothing']), { code: 'TP_BROKER_UNREACHABLE' });
    const outcomes = await transport.publisher().publish([{ topic: 'nothing', key: 'k', value: Buffer.alloc(1) }]);
    assert.equal(outcomes[0]!.outcome, 'unknown');
  });
});

/** The client's default, which we leave as it is. */
const metadataMaxAgeMs = 5000;

/**
 * A producer of the client shares its sequence numbers between sends, and a send that fails resets them. One that
 * waits for metadata just then goes out under the old producer id with sequence 0, and the broker takes it for a
 * repetition: acknowledged, never written (70 of 400 records, with the client alone). So we ask for metadata before
 * a send and not in it, and no two calls share a producer; with neither, this test fails.
 */
test('a call that fails takes nothing from the calls beside it', async () => {
  const failing = await kafka.createTopic('failing', { config: { 'max.message.bytes': '2000' } });
  const others = await Promise.all(Array.from({ length: 12 }, () => kafka.createTopic('beside')));
  const record = (topic: string, text: string) => ({ topic, key: 'k', value: Buffer.from(text) });
  await withTransport({}, async (transport) => {
    const publisher = transport.publisher();
    // Sequence 0 of every partition is used up by one producer, and then its metadata of those topics grows old.
    await publisher.publish(others.map((topic) => record(topic, 'first')));
    const old = performance.now() + metadataMaxAgeMs + 100;
    while (performance.now() < old) await publisher.publish([record(failing, 'fresh')]);
    const [failed, ...outcomes] = await Promise.all([
      publisher.publish([record(failing, 'x'.repeat(5000))]),
      ...others.map((topic) => publisher.publish([record(topic, 'second')])),
    ]);
    assert.equal(failed[0]!.outcome, 'rejected');
    assert.deepEqual(
      outcomes.map(([outcome]) => outcome!.outcome === 'acknowledged' && outcome!.position!.offset),
      others.map(() => 1n),
      'each second record stands behind the first',
    );
  });
});

test('how long records are kept is what the brokers say; of several topics the longest', async () => {
  const short = await kafka.createTopic('short', { config: { 'retention.ms': '1000', 'segment.ms': '5000' } });
  const long = await kafka.createTopic('long', { config: { 'retention.ms': '90000', 'segment.ms': '2000' } });
  const forEver = await kafka.createTopic('for-ever', { config: { 'retention.ms': '-1' } });
  const asSet = await kafka.createTopic('as-set');
  const names = [
    'log.retention.check.interval.ms',
    'offsets.retention.minutes',
    'log.retention.hours',
    'log.roll.hours',
  ];
  const set = await kafka.admin.brokerSettings(names);
  const hourMs = 3_600_000;
  const ofBroker = {
    checkIntervalMs: Number(set['log.retention.check.interval.ms']),
    offsetsRetentionMs: Number(set['offsets.retention.minutes']) * 60_000,
  };
  await withTransport({}, async (transport) => {
    assert.deepEqual(await transport.topicTimes!([short]), { retentionMs: 1000, segmentMs: 5000, ...ofBroker });
    assert.deepEqual(await transport.topicTimes!([short, long]), { retentionMs: 90_000, segmentMs: 5000, ...ofBroker });
    assert.equal((await transport.topicTimes!([long, forEver])).retentionMs, Infinity);
    assert.deepEqual(await transport.topicTimes!([asSet]), {
      retentionMs: Number(set['log.retention.hours']) * hourMs,
      segmentMs: Number(set['log.roll.hours']) * hourMs,
      ...ofBroker,
    });
  });
});
