import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase, testKafka } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import { createOutbox } from '../outbox/append.ts';
import { countPending } from '../outbox/pending.ts';
import { createRelay } from '../relay/relay.ts';
import { createPollSource } from '../sources/poll.ts';
import { transaction } from '../transaction.ts';
import { kafkaTransport } from '../transports/kafka.ts';
import { fromDelivery, type ReceivedMessage } from '../wire.ts';

const { url } = await testDatabase();
const kafka = await testKafka();
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());
await migrate(pool);

const wide = await kafka.createTopic('wide');
const narrow = await kafka.createTopic('narrow', { config: { 'max.message.bytes': '3000' } });
const outbox = createOutbox({ topics: [wide, narrow] });
const large = 'x'.repeat(5_000);

async function append(topic: string, ...texts: string[]): Promise<void> {
  const messages = texts.map((text) => ({
    topic,
    aggregateId: text.replace(/\d+.*$/s, ''),
    type: 'said',
    payload: Buffer.from(text),
  }));
  await transaction(pool, (tx) => outbox.append(tx, messages));
}

/** A relay that takes no large records, until all is published or parked. */
async function relay(): Promise<void> {
  const transport = kafkaTransport({ bootstrap: kafka.bootstrap, maxRecordBytes: 3_000 });
  const service = createRelay({ source: createPollSource({ pool }), transport, name: '/test' });
  const deadline = Date.now() + 60_000;
  while ((await countPending(pool, 1)) > 0) {
    await service.runOnce();
    assert.ok(Date.now() < deadline, 'not published');
  }
  await service.close();
  await transport.close();
}

async function read(topic: string, count: number): Promise<ReceivedMessage[]> {
  const transport = kafkaTransport({ bootstrap: kafka.bootstrap });
  const subscription = await transport.subscribe({ group: kafka.group('reader'), topics: [topic] });
  const messages: ReceivedMessage[] = [];
  const deadline = Date.now() + 60_000;
  // One look more, for what should not be there.
  for (let isEnd = false; !isEnd;) {
    const batch = await subscription.receive({ maxRecords: 100, waitMs: messages.length < count ? 5_000 : 500 });
    for (const delivery of batch?.deliveries ?? []) {
      const message = fromDelivery(delivery);
      assert.ok(!('problem' in message));
      messages.push(message);
    }
    if (batch) await subscription.settle(batch.deliveries);
    isEnd = (!batch && messages.length >= count) || Date.now() > deadline;
  }
  await transport.close();
  return messages;
}

const shown = ({ payload }: ReceivedMessage): string => Buffer.from(payload).toString().slice(0, 2);

async function twiceproof(...args: string[]) {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'main.ts'), 'outbox', ...args], {
    env: { ...process.env, DATABASE_URL: url, KAFKA_BROKERS: kafka.bootstrap },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [stdout, stderr] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const [status] = (await once(child, 'close')) as [number];
  const json = (): Record<string, unknown> => JSON.parse(stdout) as Record<string, unknown>;
  return { status, stdout, stderr, json };
}

test('a key is parked, looked at, released, and its messages stand in the topic in their order', async () => {
  await append(wide, 'a1', `b1${large}`, 'b2', 'a2');
  const before = (await twiceproof('pending', '--json')).json();
  assert.equal(before['pending'], 4);
  await relay();
  const { shards, parked } = (await twiceproof('pending', '--json')).json();
  assert.deepEqual([shards, parked], [[{ shard: 0, pending: 0, oldestSeconds: null }], { keys: 1, messages: 2 }]);

  const list = await twiceproof('parked');
  assert.match(list.stdout, /^b: .* said to .*TP_RECORD_TOO_LARGE.*; 1 behind it\n$/);
  assert.ok(!list.stdout.includes('xxx'));
  const messages = await twiceproof('parked', '--aggregate', 'b', '--json');
  assert.ok(!messages.stdout.includes('payload'));
  const full = (await twiceproof('parked', '--aggregate', 'b', '--payload', '--json')).json();
  const [, second] = full['messages'] as { payloadBase64: string }[];
  assert.equal(Buffer.from(second!.payloadBase64, 'base64').toString(), 'b2');

  const released = await twiceproof('release', '--aggregate', 'b', '--name', '/test', '--json');
  assert.deepEqual([released.status, released.json()], [0, { outcome: 'released', messages: 2 }], released.stderr);
  const found = await read(wide, 4);
  assert.deepEqual(found.map(shown), ['a1', 'a2', 'b1', 'b2']);
  assert.ok(found.every(({ source }) => source === '/test'));
  assert.match((await twiceproof('parked')).stdout, /Nothing is parked/);
});

test('what the broker will not take stays parked, and is dropped only on purpose', async () => {
  await append(narrow, `c1${large}`, 'c2', 'c3');
  await relay();
  const failed = await twiceproof('release', '--aggregate', 'c', '--name', '/test');
  assert.equal(failed.status, 1);
  assert.match(failed.stdout, /still cannot be published: TP_RECORD_TOO_LARGE.*\n {2}It is kept/);
  const { messages } = (await twiceproof('parked', '--aggregate', 'c', '--json')).json();
  const [first, second] = messages as { id: string }[];

  const asked = await twiceproof('drop', '--message', first!.id);
  assert.equal(asked.status, 2);
  assert.match(asked.stdout, /--yes/);
  assert.equal((await twiceproof('drop', '--message', second!.id, '--yes')).status, 1, 'not the first');
  const dropped = await twiceproof('drop', '--message', first!.id, '--yes');
  assert.equal(dropped.status, 0, dropped.stderr);
  assert.match(dropped.stdout, new RegExp(`Dropped: 1\n${first!.id} said`));
  assert.equal((await twiceproof('release', '--aggregate', 'c', '--name', '/test')).status, 0);
  assert.deepEqual((await read(narrow, 2)).map(shown), ['c2', 'c3']);
});

test('a record above what brokers take by default is released once its topic takes it', async () => {
  const roomy = await kafka.createTopic('roomy', { config: { 'max.message.bytes': '3000000' } });
  const messages = [{ topic: roomy, aggregateId: 'f', type: 'said', payload: Buffer.alloc(1_200_000, 'f1') }];
  const ofLarge = createOutbox({ topics: [roomy], limits: { messageBytes: 2_000_000 } });
  await transaction(pool, (tx) => ofLarge.append(tx, messages));
  await relay();
  const call = ['release', '--aggregate', 'f', '--name', '/test'];
  assert.match((await twiceproof(...call)).stdout, /TP_RECORD_TOO_LARGE/);
  const released = await twiceproof(...call, '--max-record-bytes', '2000000');
  assert.equal(released.status, 0, released.stdout + released.stderr);
  assert.deepEqual((await read(roomy, 1)).map(shown), ['f1']);
});

test('what cannot be encoded holds up what is behind it in its key, and nothing else', async () => {
  const sick = await kafka.createTopic('sick');
  const ofSick = createOutbox({ topics: [sick] });
  const said = (aggregateId: string, text: string) => ({
    topic: sick,
    aggregateId,
    type: 'said',
    payload: Buffer.from(text),
  });
  await transaction(pool, (tx) =>
    ofSick.append(tx, [said('h', `h1${large}`), said('h', 'h2'), said('h', 'h3'), said('i', 'i1')]),
  );
  await relay();
  const spoil = "SET headers = '[1]' WHERE payload = 'h2' AND topic = $1";
  await pool.query(`UPDATE twiceproof.relay_parked ${spoil}`, [sick]);
  await pool.query(`UPDATE twiceproof.outbox ${spoil}`, [sick]);
  const release = async () => twiceproof('release', '--aggregate', 'h', '--name', '/test');
  const failed = await release();
  assert.equal(failed.status, 1);
  assert.match(failed.stdout, /still cannot be published: TP_RECORD_INVALID/);
  const { messages } = (await twiceproof('parked', '--aggregate', 'h', '--json')).json();
  const [second, third] = messages as { id: string }[];
  assert.ok(second && third, 'the first was released, the others wait');
  assert.equal((await twiceproof('drop', '--message', second.id, '--yes')).status, 0);
  assert.equal((await release()).status, 0);
  assert.deepEqual((await read(sick, 3)).map(shown), ['i1', 'h1', 'h3']);

  const since = ['--since', '2020-01-01T00:00:00Z', '--topic', sick];
  const again = await twiceproof('republish', ...since, '--name', '/test', '--yes', '--json');
  assert.equal(again.status, 1);
  assert.deepEqual(again.json(), { outcome: 'published', messages: 3, rejected: [second.id] });
  assert.deepEqual((await read(sick, 6)).slice(3).map(shown).toSorted(), ['h1', 'h3', 'i1']);
});

test('what came from another cluster is neither released nor published again', async () => {
  const shift = async (by: number): Promise<void> => {
    await pool.query('UPDATE twiceproof.relay_cursor SET system_identifier = system_identifier + $1', [by]);
  };
  await shift(1);
  try {
    for (const call of [
      ['release', '--aggregate', 'f'],
      ['republish', '--since', '2020-01-01T00:00:00Z', '--yes'],
    ]) {
      const { status, stderr } = await twiceproof(...call, '--name', '/test');
      assert.equal(status, 1);
      assert.match(stderr, /TP_CURSOR_FOREIGN/, call[0]);
    }
  } finally {
    await shift(-1);
  }
});

test('published again: counted first, then the same ids in the same order, without what is parked', async () => {
  const first = await read(wide, 4);
  await append(wide, `d1${large}`, 'd2');
  await relay();
  await append(wide, 'e1');
  const since = ['--since', '2020-01-01T00:00:00Z', '--topic', wide];
  const counted = await twiceproof('republish', ...since, '--json');
  assert.deepEqual([counted.status, counted.json()], [0, { outcome: 'counted', topics: { [wide]: 4 } }]);
  assert.equal((await read(wide, 4)).length, 4, 'nothing is done yet');
  const done = await twiceproof('republish', ...since, '--name', '/test', '--yes', '--json');
  assert.deepEqual([done.status, done.json()], [0, { outcome: 'published', messages: 4, rejected: [] }], done.stderr);
  const again = (await read(wide, 8)).slice(4);
  assert.deepEqual(again.map(shown), ['a1', 'b1', 'b2', 'a2'], 'in the order in which they were appended');
  assert.deepEqual(again.map(({ id }) => id).toSorted(), first.map(({ id }) => id).toSorted());
  const one = await twiceproof('republish', ...since, '--aggregate', 'a', '--name', '/test', '--yes');
  assert.match(one.stdout, /Published again: 2\./);
  const later = await twiceproof('republish', '--since', '2999-01-01T00:00:00Z', '--name', '/test', '--yes');
  assert.match(later.stdout, /Published again: 0\./);
});

test('a topic that is not there: nothing is lost, and it is said', async () => {
  await pool.query("UPDATE twiceproof.relay_parked SET topic = 'nowhere'");
  const { rows } = await pool.query<{ n: number }>('SELECT count(*)::int AS n FROM twiceproof.relay_parked');
  assert.equal(rows[0]!.n, 2);
  const failed = await twiceproof('release', '--aggregate', 'd', '--name', '/test');
  assert.deepEqual([failed.status, /TP_TOPIC_UNKNOWN/.test(failed.stdout)], [1, true]);
  const again = await pool.query<{ n: number }>('SELECT count(*)::int AS n FROM twiceproof.relay_parked');
  assert.equal(again.rows[0]!.n, 2);
});

test('rows are kept for as long as the topics keep records', async () => {
  const short = await kafka.createTopic('short', { config: { 'retention.ms': '1' } });
  const forEver = await kafka.createTopic('for-ever', { config: { 'retention.ms': '-1' } });
  const count = async (): Promise<number> => (await pool.query('SELECT FROM twiceproof.outbox')).rowCount!;
  const isPassed = async (): Promise<boolean> => {
    const { rows } = await pool.query<{ is: boolean }>(
      `SELECT bool_and(pg_snapshot_xmin(prev) > (SELECT max(xid::text::bigint)::text::xid8 FROM twiceproof.outbox)) AS is
       FROM twiceproof.relay_cursor`,
    );
    return rows[0]!.is;
  };
  const publish = async (topic: string, text: string): Promise<void> => {
    const one = [{ topic, aggregateId: 'g', type: 'said', payload: Buffer.from(text) }];
    await transaction(pool, (tx) => createOutbox({ topics: [topic] }).append(tx, one));
    await relay();
    // The cursor has to pass it, which it does within a minute by itself; and it does not pass a transaction that was open
    // at that moment, in whichever database of the server: other tests have some.
    for (const deadline = performance.now() + 20_000; !(await isPassed());) {
      assert.ok(performance.now() < deadline, 'the cursor does not pass it');
      await pool.query(`UPDATE twiceproof.relay_cursor SET advanced_at = now() - interval '2 minutes'`);
      await createPollSource({ pool }).next({ maxMessages: 1, waitMs: 0, signal: new AbortController().signal });
    }
  };
  await publish(wide, 'g1');
  for (const call of [['--topics', `${wide},${short}`], []]) {
    const { status, stderr } = await twiceproof('prune', ...call);
    assert.equal(status, 0, stderr);
    assert.ok((await count()) > 0, 'the longest of them counts');
  }
  assert.match((await twiceproof('prune', '--topics', forEver)).stderr, /for ever: say --retention-hours/);
  assert.match((await twiceproof('prune', '--topics', wide, '--retention-hours', '1')).stderr, /not both/);
  const pruned = await twiceproof('prune', '--topics', short, '--json');
  assert.equal(pruned.status, 0, pruned.stderr);
  assert.equal(await count(), 0);

  await publish(short, 'g2');
  // What is not published yet says nothing of how long the others stay, and is not touched.
  const later = [{ topic: 'not-there-yet', aggregateId: 'g', type: 'said', payload: Buffer.from('g3') }];
  await transaction(pool, (tx) => createOutbox({ topics: ['not-there-yet'] }).append(tx, later));
  const byItsTopic = await twiceproof('prune', '--json');
  assert.deepEqual([byItsTopic.status, await count()], [0, 1], byItsTopic.stderr);
  await pool.query(`DELETE FROM twiceproof.outbox`);

  const longest = await kafka.createTopic('longest', { config: { 'retention.ms': '9223372036854775807' } });
  for (const topic of [forEver, longest]) {
    await publish(topic, 'g4');
    const refused = await twiceproof('prune');
    assert.deepEqual([refused.status, await count()], [1, 1], refused.stderr);
    assert.match(refused.stdout, /outbox_default was left as it is: .* keeps records for ever: say --retention-hours/);
    await pool.query(`DELETE FROM twiceproof.outbox`);
  }
  await publish(short, 'g5');
  await pool.query(`UPDATE twiceproof.outbox SET topic = 'gone'`);
  const unknown = await twiceproof('prune');
  assert.deepEqual([unknown.status, await count()], [1, 1]);
  assert.match(unknown.stdout, /gone.*: say --topics, or --retention-hours/);
  assert.equal((await twiceproof('prune', '--topics', 'gone')).status, 2);
  assert.match((await twiceproof('prune', '--topics', '')).stderr, /names with commas between/);
});
