import assert from 'node:assert/strict';
import {
  assertAllInKeyOrder,
  countOutcomes,
  errorCodeOf,
  keyOf,
  numbered,
  settleUntil,
  text,
  type TransportCase,
} from './transport-kit.ts';

export const publishingCases: TransportCase[] = [
  {
    name: 'an empty batch is published by doing nothing',
    async run(kit) {
      assert.deepEqual(await kit.publisher().publish([]), []);
    },
  },
  {
    name: 'records of one key keep their order, within a call and from call to call',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 4 });
      const records = numbered(topic, 1200, { keys: 25 });
      for (let at = 0; at < records.length; at += 300) await kit.publish(records.slice(at, at + 300));
      const subscription = await kit.subscribe({ topics: [topic] });
      const came = await settleUntil(subscription, (settled) => settled.length >= records.length);
      assert.equal(came.length, records.length);
      assertAllInKeyOrder(records, came);
    },
  },
  {
    name: 'an acknowledgement says where the record is',
    features: ['positions'],
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 3 });
      const records = numbered(topic, 60, { keys: 12 });
      const outcomes = await kit.publish(records);
      const subscription = await kit.subscribe({ topics: [topic] });
      const came = await settleUntil(subscription, (settled) => settled.length >= records.length);
      for (const delivery of came) {
        const outcome = outcomes[Number(text(delivery))]!;
        assert.ok(outcome.outcome === 'acknowledged');
        assert.deepEqual(outcome.position, delivery.position);
      }
    },
  },
  {
    name: 'keys, values and headers arrive byte for byte',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1 });
      const everyByte = Uint8Array.from({ length: 256 }, (_, i) => i);
      const key = '\u0000\u0001 äöü 日本語 🚀\uffff';
      const headers = { ce_id: '0192f3a4', empty: '', ünï: '日本 🚀\u0000' };
      await kit.publish([
        { topic, key, value: everyByte.subarray(1, 255), headers },
        { topic, key: '', value: new Uint8Array(0) },
      ]);
      const subscription = await kit.subscribe({ topics: [topic] });
      const [first, second] = await settleUntil(subscription, (settled) => settled.length >= 2);
      assert.equal(keyOf(first!), key);
      assert.deepEqual([...first!.value], [...everyByte.subarray(1, 255)]);
      assert.deepEqual(
        first!.headers.map(([name, value]) => [name, Buffer.from(value).toString()]),
        Object.entries(headers),
      );
      assert.equal(keyOf(second!), '');
      assert.equal(second!.value.length, 0);
      assert.deepEqual(second!.headers, []);
    },
  },
  {
    name: 'a record that cannot be encoded is rejected, its key waits, other keys go on',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1 });
      const value = Buffer.from('v');
      const outcomes = await kit.publisher().publish([
        { topic, key: 'a', value },
        { topic, key: 'a', value, headers: { broken: '\ud800' } },
        { topic, key: 'a', value },
        { topic, key: 'b', value },
      ]);
      assert.deepEqual(
        outcomes.map(({ outcome }) => outcome),
        ['acknowledged', 'rejected', 'withheld', 'acknowledged'],
      );
      assert.equal(errorCodeOf(outcomes[1]), 'TP_RECORD_INVALID');
    },
  },
  {
    name: 'one record that is too large in a batch of many is rejected, its key waits, other keys go on',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 2, maxMessageBytes: 20_000 });
      const records = numbered(topic, 400, { keys: 20 });
      const culprit = 187; // of key-7, with ten more of that key behind it
      records[culprit] = { ...records[culprit]!, value: Buffer.alloc(30_000, 'x') };
      const outcomes = await kit.publisher().publish(records);
      assert.equal(outcomes[culprit]!.outcome, 'rejected');
      assert.equal(errorCodeOf(outcomes[culprit]), 'TP_RECORD_TOO_LARGE');
      assert.deepEqual(countOutcomes(outcomes), { acknowledged: 389, rejected: 1, withheld: 10 });
      const acknowledged = records.filter((_, i) => outcomes[i]!.outcome === 'acknowledged');
      const withheld = records.filter((_, i) => outcomes[i]!.outcome === 'withheld');
      assert.ok(withheld.every(({ key }) => key === 'key-7'));
      const subscription = await kit.subscribe({ topics: [topic] });
      const came = await settleUntil(subscription, (settled) => settled.length >= acknowledged.length);
      assert.equal(came.length, acknowledged.length);
      assertAllInKeyOrder(acknowledged, came);
    },
  },
  {
    name: 'a batch of small records may be larger than any one message may be',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1, maxMessageBytes: 20_000 });
      const records = numbered(topic, 200).map((record) => ({ ...record, headers: { padding: 'x'.repeat(1000) } }));
      await kit.publish(records);
      const subscription = await kit.subscribe({ topics: [topic] });
      const came = await settleUntil(subscription, (settled) => settled.length >= records.length);
      assert.equal(came.length, records.length);
      assertAllInKeyOrder(records, came);
    },
  },
  {
    name: 'an unknown topic is refused and never made, and the other topics of the call go on',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1 });
      const unknown = `${topic}-unknown`;
      for (let attempt = 0; attempt < 2; attempt += 1) {
        const outcomes = await kit.publisher().publish([...numbered(unknown, 2), ...numbered(topic, 1)]);
        assert.deepEqual(
          outcomes.map(({ outcome }) => outcome),
          ['refused', 'refused', 'acknowledged'],
        );
        assert.equal(errorCodeOf(outcomes[0]), 'TP_TOPIC_UNKNOWN');
      }
      await assert.rejects(kit.subscribe({ topics: [unknown] }), { code: 'TP_TOPIC_UNKNOWN' });
    },
  },
  {
    name: 'what is wrong with a topic can be known before anything is published',
    features: ['topics'],
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1 });
      const small = await kit.harness.createTopic({ partitions: 1, maxMessageBytes: 20_000 });
      const unknown = `${topic}-unknown`;
      const found = await kit.transport().topicProblems!([topic, small, unknown], { recordBytes: 30_000 });
      // How weak a topic is depends on the cluster that the suite is run on.
      const kinds = found.filter(({ kind }) => kind !== 'weak').map(({ topic: name, kind }) => [name, kind]);
      assert.deepEqual(kinds, [
        [small, 'small'],
        [unknown, 'missing'],
      ]);
      // Looking at it has not made it.
      const [outcome] = await kit.publisher().publish(numbered(unknown, 1));
      assert.equal(errorCodeOf(outcome), 'TP_TOPIC_UNKNOWN');
    },
  },
  {
    name: 'how long records are kept can be known, and is not guessed for a topic that is not there',
    features: ['times'],
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1 });
      const times = await kit.transport().topicTimes!([topic]);
      assert.deepEqual(Object.keys(times).toSorted(), [
        'checkIntervalMs',
        'offsetsRetentionMs',
        'retentionMs',
        'segmentMs',
      ]);
      for (const [name, ms] of Object.entries(times)) assert.ok(ms > 0, `${name} is ${ms}`);
      await assert.rejects(kit.transport().topicTimes!([topic, `${topic}-unknown`]), { code: 'TP_TOPIC_UNKNOWN' });
    },
  },
  {
    name: 'calls for different keys may overlap',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 3 });
      const calls = Array.from({ length: 8 }, (_, call) =>
        numbered(topic, 50).map((record) => ({ ...record, key: `call-${call}` })),
      );
      await Promise.all(calls.map((records) => kit.publish(records)));
      const subscription = await kit.subscribe({ topics: [topic] });
      const came = await settleUntil(subscription, (settled) => settled.length >= 400);
      assert.equal(came.length, 400);
      assertAllInKeyOrder(calls.flat(), came);
    },
  },
  {
    name: 'a closed publisher says so',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1 });
      const publisher = kit.transport().publisher();
      await publisher.close();
      await assert.rejects(publisher.publish(numbered(topic, 1)), { code: 'TP_CLOSED' });
    },
  },
];
