import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, test, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { testDatabase, testKafka } from '@twiceproof/infra/testing';
import { migrate } from 'twiceproof/migrations';
import { createOutbox } from 'twiceproof/outbox';
import { countPending } from 'twiceproof/outbox/pending';
import { transaction } from 'twiceproof/transaction';
import { kafkaTransport } from 'twiceproof/transports/kafka';
import { readTopic, startRelay, textsByKey, until, type Received, type Relay } from './program-under-test.ts';

const shards = 4;
const { url } = await testDatabase();
const kafka = await testKafka();
const servers = { databaseUrl: url, brokers: kafka.bootstrap };
const pool = new pg.Pool({ connectionString: url, max: 3 });
after(async () => pool.end());
await migrate(pool, { shards });

async function read(topic: string): Promise<Received[]> {
  const transport = kafkaTransport({ bootstrap: kafka.bootstrap });
  try {
    return await readTopic(transport, kafka.group('reader'), topic);
  } finally {
    await transport.close();
  }
}

/** Appends ten messages a transaction to twenty keys, until it is stopped, and answers the texts of each key. */
function startWriter(topic: string): { written(): number; stop(): Promise<Record<string, string[]>> } {
  const outbox = createOutbox({ topics: [topic] });
  const expected: Record<string, string[]> = {};
  let count = 0;
  let stopped = false;
  const writing = (async () => {
    while (!stopped) {
      const messages = Array.from({ length: 10 }, (_, n) => ({
        topic,
        aggregateId: `key-${(count + n) % 20}`,
        type: 'counted',
        payload: Buffer.from(String(count + n)),
      }));
      await transaction(pool, (tx) => outbox.append(tx, messages));
      for (const { aggregateId, payload } of messages) (expected[aggregateId] ??= []).push(String(payload));
      count += messages.length;
      // A load that relays on a busy machine can follow, or the tests would wait for a backlog to be drained.
      await delay(20);
    }
  })();
  return {
    written: () => count,
    stop: async () => {
      stopped = true;
      await writing;
      return expected;
    },
  };
}

async function untilDrained(relay: Relay): Promise<void> {
  await until(`all is published; ${relay.stderr()}`, async () => (await countPending(pool, 1_000_000)) === 0);
}

test('after SIGTERM and a restart under load each message is in the topic once, and in order', async (context) => {
  const topic = await kafka.createTopic('restart', { partitions: 3 });
  const args = [`--topics=${topic}`, '--batch=50'];
  const writer = startWriter(topic);
  for (let turn = 0; turn < 3; turn += 1) {
    const relay = await startRelay(context, servers, args);
    await until('it publishes', async () => (await relay.metric('relay_published_total')) > 300);
    assert.equal(await relay.stop(), 0, relay.stderr());
  }
  const expected = await writer.stop();
  const last = await startRelay(context, servers, args);
  await untilDrained(last);
  assert.equal(await last.stop(), 0);
  const received = await read(topic);
  assert.equal(received.length, writer.written());
  assert.deepEqual(textsByKey(received), expected);
});

/** Kills the program when it comes to this point. */
async function killAt(context: TestContext, point: string): Promise<{ env: NodeJS.ProcessEnv }> {
  const directory = mkdtempSync(join(tmpdir(), 'twiceproof-points-'));
  const supervisor = createServer((socket) => {
    createInterface({ input: socket }).on('line', (line) => {
      const { id, name, pid } = JSON.parse(line) as { id: number; name: string; pid: number };
      if (name === point) process.kill(pid, 'SIGKILL');
      else socket.write(`${id}\n`);
    });
    socket.on('error', () => {});
  }).listen(join(directory, 'socket'));
  await once(supervisor, 'listening');
  context.after(() => {
    supervisor.close();
    rmSync(directory, { recursive: true });
  });
  return { env: { TWICEPROOF_POINTS: join(directory, 'socket') } };
}

test('what a relay that was killed may have published is counted by the next one, and not too low', async (context) => {
  const topic = await kafka.createTopic('killed', { partitions: 3 });
  const args = [`--topics=${topic}`, '--batch=20'];
  const outbox = createOutbox({ topics: [topic] });
  const messages = Array.from({ length: 200 }, (_, n) => ({
    topic,
    aggregateId: `key-${n % 20}`,
    type: 'counted',
    payload: Buffer.from(String(n)),
  }));
  await transaction(pool, (tx) => outbox.append(tx, messages));
  const { env } = await killAt(context, 'relay:acknowledged');
  const killed = await startRelay(context, servers, args, env);
  await killed.exited;
  const next = await startRelay(context, servers, args);
  await untilDrained(next);
  const maybe = await next.metric('relay_maybe_republished_total');
  assert.equal(await next.metric('relay_republished_total'), 0);
  await next.stop();
  const received = await read(topic);
  const twice = received.length - new Set(received.map(({ id }) => id)).size;
  assert.ok(twice > 0, 'the one that was killed had published a batch');
  assert.ok(twice <= maybe && maybe <= shards * 20, `${twice} came twice, ${maybe} were counted`);
});

test('several at once publish each message once, and one that is killed is replaced by the others', async (context) => {
  const topic = await kafka.createTopic('several', { partitions: 3 });
  const args = [`--topics=${topic}`, '--batch=50', '--lanes=2'];
  const relays = await Promise.all([1, 2, 3].map(async () => startRelay(context, servers, args)));
  const published = async () => Promise.all(relays.map(async (relay) => relay.metric('relay_published_total')));
  const writer = startWriter(topic);
  await until('more than one works', async () => (await published()).filter((count) => count > 0).length > 1);
  await until('much is published', async () => (await published()).reduce((sum, count) => sum + count, 0) > 1_000);
  const expected = await writer.stop();
  await untilDrained(relays[0]!);
  assert.equal(
    (await published()).reduce((sum, count) => sum + count, 0),
    writer.written(),
  );
  assert.deepEqual(textsByKey(await read(topic)), expected);

  const [victim, ...others] = relays;
  victim!.signal('SIGKILL');
  await victim!.exited;
  const again = startWriter(topic);
  await until('there is more', async () => again.written() > 200);
  await again.stop();
  await untilDrained(others[0]!);
  for (const relay of others) assert.equal(await relay.stop(), 0);
  const received = await read(topic);
  assert.equal(new Set(received.map(({ id }) => id)).size, writer.written() + again.written());
});

test('a topic that is made smaller later is noticed, and the relay goes on', async (context) => {
  const topic = await kafka.createTopic('shrinking');
  const relay = await startRelay(context, servers, [`--topics=${topic}`, '--topics-every-ms=200']);
  await until('all is right', async () => /^relay_topic_problems 0$/m.test(await page(relay)));
  await kafka.admin.deleteTopics(topic);
  await until('it is missed', async () => /does not exist/.test(relay.stderr()));
  await kafka.admin.createTopic(topic, { partitions: 1, config: { 'max.message.bytes': '500000' } });
  await until('it is too small', async () => /"level":"error".*max.message.bytes is 500000/.test(relay.stderr()));
  await until('it is counted', async () => (await relay.metric('relay_topic_problems')) === 1);
  assert.ok((await relay.readyz()).startsWith('200'));
  assert.equal(await relay.stop(), 0);
});

async function page({ admin }: Relay): Promise<string> {
  return (await fetch(`${admin}/metrics`)).text();
}

test('docs/metrics.md lists the metrics of the relay, and no others', async (context) => {
  const topic = await kafka.createTopic('metrics');
  const relay = await startRelay(context, servers, [`--topics=${topic}`]);
  const text = await page(relay);
  await relay.stop();
  const served = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => `${name} ${type}`);
  const doc = readFileSync(join(import.meta.dirname, '../../docs/metrics.md'), 'utf8');
  const listed = [...doc.matchAll(/^\| `(relay_\w+)(?:\{\w+\})?` *\| (\w+) *\|/gm)].map(
    ([, name, type]) => `${name} ${type}`,
  );
  assert.ok(served.length > 15, text);
  assert.deepEqual(listed.toSorted(), served.toSorted());
});
