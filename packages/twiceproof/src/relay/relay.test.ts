import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import fc from 'fast-check';
import { TwiceproofError } from '../errors.ts';
import type { MessageId } from '../message.ts';
import type { Service } from '../service.ts';
import type { Source, SourcedMessage } from '../source.ts';
import type { OutgoingRecord, Publisher, PublishOutcome, Transport } from '../transport.ts';
import { createMemoryBroker } from '../transports/memory.ts';
import { uuidv7 } from '../uuid.ts';
import { createRelay, type RelayOptions, type RelayPass } from './relay.ts';

/** `a1` is the first message of key a. */
function message(text: string, topic = 'known', bytes = 10): SourcedMessage {
  const payload = Buffer.alloc(bytes, text);
  return { id: uuidv7(), topic, aggregateId: text[0]!, type: text, payload, createdAt: new Date() };
}

/** A source in memory that keeps its contract, and a list of what became of its messages. */
function createSource(
  messages: readonly SourcedMessage[],
  onAdvance: (done: readonly SourcedMessage[]) => void = () => {},
) {
  const left = [...messages];
  const done: SourcedMessage[] = [];
  const parked: { message: SourcedMessage; reason: string }[] = [];
  let isHeld = false;
  const source: Source = {
    name: 'fake',
    check: async () => {},
    close: async () => {},
    async next({ maxMessages, waitMs, signal }) {
      const deadline = performance.now() + waitMs;
      while (isHeld || left.length === 0) {
        if (signal.aborted || performance.now() >= deadline) return undefined;
        await delay(1);
      }
      if (signal.aborted) return undefined;
      isHeld = true;
      const batch = left.slice(0, maxMessages);
      return {
        messages: batch,
        async advance(progress) {
          isHeld = false;
          const reasons = new Map(progress.parked.map(({ index, reason }) => [index, reason]));
          const published = batch.slice(0, progress.done).filter((_, n) => !reasons.has(n));
          onAdvance(published);
          for (const [index, reason] of reasons) parked.push({ message: batch[index]!, reason });
          done.push(...published);
          left.splice(0, progress.done);
        },
        async abandon() {
          isHeld = false;
        },
      };
    },
  };
  return { source, left, done, parked };
}

/** A relay whose passes, troubles and records are written down. */
function createWatchedRelay(options: Pick<RelayOptions, 'source' | 'transport'> & Partial<RelayOptions>) {
  const passes: RelayPass[] = [];
  const troubles: unknown[] = [];
  const relay = createRelay({
    name: '/test',
    observe: (seen) => passes.push(seen),
    onTrouble: (error) => troubles.push(error),
    ...options,
  });
  const codes = (): unknown[] => troubles.map((error) => (error as { code?: unknown }).code);
  return { relay, passes, codes };
}

/** Answers how to stop it, which also happens at the end of the test. */
function start(t: TestContext, relay: Service): () => Promise<void> {
  const stopping = new AbortController();
  const ended = relay.run(stopping.signal);
  const stop = async (): Promise<void> => {
    stopping.abort();
    await ended;
  };
  t.after(stop);
  return stop;
}

/** A transport whose publishers do what the test says, and otherwise what the real one does. */
function wrap(
  transport: Transport,
  publish: (real: Publisher, records: readonly OutgoingRecord[]) => Promise<PublishOutcome[]>,
) {
  const sent: MessageId[] = [];
  const closed: Publisher[] = [];
  let made = 0;
  const wrapped: Transport = {
    ...transport,
    publisher() {
      made += 1;
      const real = transport.publisher();
      return {
        publish: async (records) => {
          sent.push(...records.map(({ headers }) => headers!['ce_id']!));
          return publish(real, records);
        },
        close: async () => {
          closed.push(real);
          await real.close();
        },
      };
    },
  };
  return { transport: wrapped, sent, made: () => made, closed };
}

function broker(...topics: string[]) {
  const made = createMemoryBroker();
  for (const topic of topics) made.createTopic(topic, { partitions: 2, maxMessageBytes: 1_000 });
  return made;
}

const textsOf = (messages: readonly SourcedMessage[]): string[] => messages.map(({ type }) => type);
const lost = new TwiceproofError('TP_DEADLINE', 'no answer');

test('what is published is advanced: a full batch asks for more at once, what is not full does not', async () => {
  const { source, done, left } = createSource(['a1', 'b1', 'a2'].map((text) => message(text)));
  const { transport, sent } = wrap(broker('known').transport(), async (real, records) => real.publish(records));
  const { relay, passes, codes } = createWatchedRelay({ source, transport, batch: 2 });
  assert.equal(await relay.runOnce(), 'busy');
  assert.equal(await relay.runOnce(), 'idle');
  assert.equal(await relay.runOnce(), 'idle');
  assert.deepEqual(textsOf(done), ['a1', 'b1', 'a2']);
  assert.deepEqual([left.length, sent.length, codes()], [0, 3, []]);
  assert.deepEqual(
    passes.map(({ messages, acknowledged, parked, republished, agesMs }) => [
      messages,
      acknowledged,
      parked,
      republished,
      agesMs.length,
    ]),
    [
      [2, 2, 0, 0, 2],
      [1, 1, 0, 0, 1],
    ],
  );
});

test('nothing is advanced that is not acknowledged, everything is in the end, and each key appears in its order', async () => {
  const kind = fc.constantFrom('acknowledged', 'acknowledged', 'written and not answered', 'lost');
  const world = fc.record({
    keys: fc.array(fc.constantFrom('a', 'b', 'c'), { minLength: 1, maxLength: 12 }),
    fates: fc.array(kind, { maxLength: 25 }),
    batch: fc.integer({ min: 1, max: 5 }),
  });
  await fc.assert(
    fc.asyncProperty(world, async ({ keys, fates, batch }) => {
      const acknowledged = new Set<MessageId>();
      const written: MessageId[] = [];
      const messages = keys.map((key, n) => message(`${key}${n}`));
      const { source, done, left } = createSource(messages, (advanced) => {
        assert.deepEqual(textsOf(advanced.filter(({ id }) => !acknowledged.has(id))), [], 'not acknowledged');
      });
      const open = [...fates];
      const { transport } = wrap(broker('known').transport(), async (_, records) => {
        const blocked = new Set<string>();
        return records.map(({ key, headers }): PublishOutcome => {
          const fate = blocked.has(key) ? 'withheld' : (open.shift() ?? 'acknowledged');
          if (fate === 'acknowledged' || fate === 'written and not answered') written.push(headers!['ce_id']!);
          if (fate !== 'acknowledged') blocked.add(key);
          if (fate === 'acknowledged') acknowledged.add(headers!['ce_id']!);
          return fate === 'acknowledged' || fate === 'withheld'
            ? { outcome: fate }
            : { outcome: 'unknown', error: lost };
        });
      });
      const { relay } = createWatchedRelay({ source, transport, batch });
      for (let pass = 0; pass < 60 && left.length > 0; pass += 1) await relay.runOnce();
      assert.deepEqual(done, messages);
      const first = [...new Set(written)].map((id) => messages.find((each) => each.id === id)!);
      for (const [key, ofKey] of Map.groupBy(first, ({ aggregateId }) => aggregateId)) {
        assert.deepEqual(
          ofKey,
          messages.filter(({ aggregateId }) => aggregateId === key),
        );
      }
    }),
    { numRuns: 500 },
  );
});

test('what was acknowledged behind one that was not is not sent again, and counts once', async () => {
  const { source, done } = createSource([message('a1'), message('b1'), message('c1')]);
  let answers = 0;
  const { transport, sent } = wrap(broker('known').transport(), async (real, records) => {
    answers += 1;
    const outcomes = await real.publish(records);
    return answers > 2 ? outcomes : outcomes.map((each, n) => (n === 0 ? { outcome: 'unknown', error: lost } : each));
  });
  const { relay, passes, codes } = createWatchedRelay({ source, transport });
  for (let pass = 0; pass < 3; pass += 1) await relay.runOnce();
  assert.equal(sent.length, 5, 'all three, and the first of them twice more');
  assert.deepEqual(textsOf(done), ['a1', 'b1', 'c1']);
  assert.deepEqual(
    passes.map(({ acknowledged, republished }) => [acknowledged, republished]),
    [
      [2, 0],
      [0, 1],
      [1, 1],
    ],
  );
  assert.deepEqual(codes(), ['TP_DEADLINE', 'TP_DEADLINE']);
});

test('an unknown topic parks nothing: what is before it goes on, the rest waits, for as long as it takes', async () => {
  const memory = broker('known');
  const { source, done, parked, left } = createSource([message('a1'), message('b1', 'missing'), message('c1')]);
  const { transport, sent } = wrap(memory.transport(), async (real, records) => real.publish(records));
  const { relay, codes } = createWatchedRelay({ source, transport });
  for (let pass = 0; pass < 50; pass += 1) assert.equal(await relay.runOnce(), 'idle');
  assert.deepEqual(textsOf(done), ['a1']);
  assert.deepEqual(textsOf(left), ['b1', 'c1']);
  assert.deepEqual(
    codes(),
    Array.from({ length: 50 }, () => 'TP_TOPIC_UNKNOWN'),
  );
  memory.createTopic('missing', { partitions: 1 });
  await relay.runOnce();
  assert.deepEqual(textsOf(done), ['a1', 'b1', 'c1']);
  assert.equal(sent.filter((id) => id === done[2]!.id).length, 1);
  assert.deepEqual(parked, []);
});

test('a topic to which nothing may be written parks nothing either: its shard waits, for as long as it takes', async () => {
  const { source, done, parked, left } = createSource([
    message('a1'),
    message('b1', 'closed'),
    message('b2', 'closed'),
  ]);
  const error = new TwiceproofError('TP_NOT_AUTHORIZED', 'not for you');
  let mayWrite = false;
  const { transport } = wrap(broker('known', 'closed').transport(), async (real, records) => {
    const isRefused = ({ topic }: OutgoingRecord): boolean => topic === 'closed' && !mayWrite;
    const outcomes = await real.publish(records.filter((record) => !isRefused(record)));
    return records.map((record) => (isRefused(record) ? { outcome: 'refused', error } : outcomes.shift()!));
  });
  const { relay, codes } = createWatchedRelay({ source, transport });
  for (let pass = 0; pass < 20; pass += 1) await relay.runOnce();
  assert.deepEqual([textsOf(done), textsOf(left), parked], [['a1'], ['b1', 'b2'], []]);
  assert.deepEqual(new Set(codes()), new Set(['TP_NOT_AUTHORIZED']));
  mayWrite = true;
  await relay.runOnce();
  assert.deepEqual([textsOf(done), parked], [['a1', 'b1', 'b2'], []]);
});

test('what a transport does not answer is not done', async () => {
  const messages = [message('a1'), message('b1'), message('c1')];
  const { source, done, left } = createSource(messages);
  let calls = 0;
  const { transport } = wrap(broker('known').transport(), async (real, records) => {
    const outcomes = await real.publish(records);
    return (calls += 1) === 1 ? outcomes.slice(0, 1) : outcomes;
  });
  const { relay, codes } = createWatchedRelay({ source, transport });
  await relay.runOnce();
  assert.deepEqual([textsOf(done), textsOf(left)], [['a1'], ['b1', 'c1']]);
  assert.deepEqual(codes(), ['TP_BROKER_UNREACHABLE']);
  await relay.runOnce();
  assert.deepEqual(textsOf(done), ['a1', 'b1', 'c1']);
});

test('too large a record parks its key, with what stands behind it; other keys go on', async () => {
  const { source, done, parked, left } = createSource([
    message('a1'),
    message('b1', 'known', 2_000),
    message('b2'),
    message('c1'),
  ]);
  const { relay, passes, codes } = createWatchedRelay({ source, transport: broker('known').transport() });
  await relay.runOnce();
  assert.deepEqual(textsOf(done), ['a1', 'c1']);
  assert.deepEqual(textsOf(parked.map(({ message: each }) => each)), ['b1', 'b2']);
  assert.match(parked[0]!.reason, /TP_RECORD_TOO_LARGE/);
  assert.deepEqual([left.length, passes[0]!.acknowledged, passes[0]!.parked], [0, 2, 2]);
  assert.deepEqual(codes(), [], 'what is parked is counted, and is no trouble of the shard');
});

test('what cannot be encoded, or has a topic that nobody can create, parks its key alone; nothing overtakes it', async () => {
  const sick: Partial<SourcedMessage>[] = [
    { createdAt: new Date(Number.NaN) },
    { topic: 'no such name' },
    { topic: '..' },
    { headers: 'text' as unknown as Record<string, string> },
  ];
  const batch = sick.flatMap((change, n) => {
    const key = 'abcd'[n]!;
    return [{ ...message(`${key}1`), ...change }, message(`${key}2`), message(`x${n + 1}`)];
  });
  const { source, done, parked } = createSource(batch);
  const { relay, codes } = createWatchedRelay({ source, transport: broker('known').transport() });
  await relay.runOnce();
  assert.deepEqual(textsOf(done), ['x1', 'x2', 'x3', 'x4']);
  assert.deepEqual(
    parked.map(({ message: { type }, reason }) => `${type} ${reason.split(':')[0]}`),
    ['a', 'b', 'c', 'd'].flatMap((key) => [`${key}1 TP_RECORD_INVALID`, `${key}2 behind a message that is parked`]),
  );
  assert.deepEqual(codes(), []);
});

test('a topic that it was not told of is not published to: its shard waits, with an alarm', async () => {
  const { source, done, left } = createSource([message('a1'), message('b1', 'strange'), message('c1')]);
  const transport = broker('known', 'strange').transport();
  const { relay, codes } = createWatchedRelay({ source, transport, topics: ['known'] });
  await relay.runOnce();
  assert.deepEqual([textsOf(done), textsOf(left)], [['a1'], ['b1', 'c1']]);
  assert.deepEqual(codes(), ['TP_TOPIC_NOT_CONFIGURED']);
});

test('a publisher that never answers is left at the deadline, and another takes its place', async () => {
  const { source, done } = createSource([message('a1')]);
  const { transport, made, closed, sent } = wrap(broker('known').transport(), async (real, records) =>
    made() === 1 ? new Promise<never>(() => {}) : real.publish(records),
  );
  const times = { publishDeadlineMs: 20, idleTimeoutMs: 40, watchdogMs: 60 };
  const { relay, codes, passes } = createWatchedRelay({ source, transport, times });
  await relay.runOnce();
  assert.deepEqual([done.length, made(), closed.length, codes()], [0, 2, 1, ['TP_DEADLINE']]);
  await relay.runOnce();
  assert.deepEqual([done.length, made(), sent.length, passes[1]!.republished], [1, 2, 2, 1]);
});

test('a transport that fails altogether, and a source that does, are troubles: it goes on', async (t) => {
  const { source, done } = createSource([message('a1')]);
  const failures = [new Error('no database'), new Error('no transport')];
  const { transport } = wrap(broker('known').transport(), async (real, records) => {
    const failure = failures.pop();
    if (failure) throw failure;
    return real.publish(records);
  });
  const flaky: Source = {
    ...source,
    next: async (options) => {
      if (failures.length === 1) throw failures.pop()!;
      return source.next(options);
    },
  };
  const { relay, codes } = createWatchedRelay({ source: flaky, transport });
  const stop = start(t, relay);
  await until(() => done.length > 0);
  await stop();
  assert.deepEqual([codes().length, failures.length], [2, 0]);
});

test('an observer that throws is a trouble, and holds up nothing', async (t) => {
  const { source, done, left } = createSource(['a1', 'a2', 'a3'].map((text) => message(text)));
  const broken = new TwiceproofError('TP_OPTION', 'no room for metrics');
  const observe = (): void => {
    throw broken;
  };
  const { relay, codes } = createWatchedRelay({ source, transport: broker('known').transport(), batch: 1, observe });
  start(t, relay);
  const deadline = performance.now() + 20_000;
  while (left.length > 0 && performance.now() < deadline) await delay(1);
  assert.deepEqual(textsOf(done), ['a1', 'a2', 'a3']);
  assert.deepEqual(new Set(codes()), new Set(['TP_OPTION']));
});

test('an advance that fails is told, and what was acknowledged is not sent again by the same relay', async () => {
  let attempts = 0;
  const { source, done } = createSource([message('a1'), message('a2')], () => {
    attempts += 1;
    if (attempts === 1) throw new Error('the connection is gone');
  });
  const { transport, sent } = wrap(broker('known').transport(), async (real, records) => real.publish(records));
  const { relay } = createWatchedRelay({ source, transport });
  await assert.rejects(relay.runOnce(), /the connection is gone/);
  await relay.runOnce();
  assert.deepEqual([textsOf(done), sent.length], [['a1', 'a2'], 2]);
});

test('told to stop it finishes the pass that is under way, and begins no other', async (t) => {
  const { source, done, left } = createSource([message('a1'), message('a2')]);
  const gate = Promise.withResolvers<undefined>();
  const { transport, sent } = wrap(broker('known').transport(), async (real, records) => {
    await gate.promise;
    return real.publish(records);
  });
  const { relay } = createWatchedRelay({ source, transport, batch: 1 });
  t.after(() => gate.resolve(undefined));
  const stop = start(t, relay);
  await until(() => sent.length > 0);
  const stopped = stop();
  assert.equal(await Promise.race([stopped.then(() => 'ended'), delay(20, 'under way')]), 'under way');
  gate.resolve(undefined);
  await stopped;
  assert.deepEqual([textsOf(done), textsOf(left)], [['a1'], ['a2']]);
});

test('while it waits after a trouble it can be stopped', { timeout: 20_000 }, async (t) => {
  const { source } = createSource([message('a1', 'missing')]);
  const { relay, codes } = createWatchedRelay({ source, transport: broker().transport() });
  const stop = start(t, relay);
  await until(() => codes().length >= 4);
  await stop();
});

test('lanes publish batches at the same time', async (t) => {
  const shards = [createSource([message('a1')]), createSource([message('b1')])];
  const source: Source = {
    ...shards[0]!.source,
    next: async (options) =>
      (await shards[0]!.source.next({ ...options, waitMs: 0 })) ?? shards[1]!.source.next({ ...options, waitMs: 5 }),
  };
  const gate = Promise.withResolvers<undefined>();
  const { transport, sent } = wrap(broker('known').transport(), async (real, records) => {
    if (sent.length === 2) gate.resolve(undefined);
    await gate.promise;
    return real.publish(records);
  });
  const { relay } = createWatchedRelay({ source, transport, lanes: 2 });
  t.after(() => gate.resolve(undefined));
  const stop = start(t, relay);
  await until(() => shards.every(({ left }) => left.length === 0));
  await stop();
});

test('times in another order are refused', () => {
  const { source } = createSource([]);
  const times = { publishDeadlineMs: 30_000 };
  assert.throws(() => createWatchedRelay({ source, transport: broker().transport(), times }), { code: 'TP_OPTION' });
});

async function until(holds: () => boolean): Promise<void> {
  const deadline = performance.now() + 10_000;
  while (!holds()) {
    assert.ok(performance.now() < deadline, 'waited in vain');
    await delay(1);
  }
}

test('what it could do nothing with, or nothing right, is refused', () => {
  const { source } = createSource([]);
  const transport = broker('known').transport();
  for (const [wrong, what] of [
    [{ batch: 0 }, /batch/],
    [{ batch: 2.5 }, /batch/],
    [{ lanes: 0 }, /lanes/],
    [{ name: '' }, /name/],
    [{ name: undefined as never }, /name/],
    [
      { source: { ...source, times: { publishDeadlineMs: 1, idleTimeoutMs: 15_000, watchdogMs: 20_000 } }, times: {} },
      /same times/,
    ],
  ] satisfies [Partial<RelayOptions>, RegExp][]) {
    assert.throws(() => createWatchedRelay({ source, transport, ...wrong }), { code: 'TP_OPTION', message: what });
  }
});

test('without times of its own it goes by those of its source', async (t) => {
  const { source } = createSource([message('a1')]);
  const never = wrap(broker('known').transport(), async () => new Promise(() => {}));
  const times = { publishDeadlineMs: 20, idleTimeoutMs: 10_000, watchdogMs: 20_000 };
  const { relay, codes } = createWatchedRelay({ source: { ...source, times }, transport: never.transport });
  start(t, relay);
  // Its own default would be 15 s.
  for (const began = performance.now(); codes().length === 0 && performance.now() - began < 10_000;) await delay(1);
  assert.equal(codes()[0], 'TP_DEADLINE');
});

test('what is acknowledged counts once, also where the source could not advance', async () => {
  let fails = true;
  const { source } = createSource([message('a1')], () => {
    if (!fails) return;
    fails = false;
    throw new Error('the connection is lost');
  });
  const { relay, passes } = createWatchedRelay({ source, transport: broker('known').transport() });
  await assert.rejects(relay.runOnce());
  await relay.runOnce();
  assert.equal(
    passes.reduce((sum, { acknowledged }) => sum + acknowledged, 0),
    1,
  );
});
