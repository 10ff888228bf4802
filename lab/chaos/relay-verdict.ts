/** What must be true of the topics in the end, whatever happened: they are read back whole. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { Consumer } from '@platformatic/kafka';
import type pg from 'pg';
import { within } from '../supervisor/deadline.ts';
import type { RelayWorld } from './relay-world.ts';

export interface Read {
  id: string;
  key: string;
  value: string;
}

export interface Verdict {
  /** Committed, and not parked. */
  messages: number;
  /** Records in the topics beyond one for each message. */
  duplicates: number;
}

const publishedWithinMs = 60_000;
const readWithinMs = 60_000;

/** Waits until the outbox says that all is published, and compares the topics with the committed rows. */
export async function judge({ database, kafka }: RelayWorld, topics: readonly string[]): Promise<Verdict> {
  await untilPublished(database);
  const expected = await committed(database, topics);
  assert.deepEqual(await parkedWithoutCause(database, topics), [], 'nothing is parked but what can never be published');
  const read = (await Promise.all(topics.map(async (topic) => readTopic(kafka.bootstrap, topic)))).flat();
  const first = new Map<string, Read>();
  for (const record of read) {
    const before = first.get(record.id);
    if (before) assert.deepEqual(record, before, 'what is published again is the same');
    else first.set(record.id, record);
  }
  const byId = (records: Iterable<Read>): Read[] => [...records].toSorted((a, b) => (a.id < b.id ? -1 : 1));
  assert.deepEqual(byId(first.values()), byId(expected), 'the topics hold what was committed, and nothing else');
  for (const [key, records] of Map.groupBy(first.values(), (record) => record.key)) {
    const versions = records.map(({ value }) => (JSON.parse(value) as { version: number }).version);
    assert.deepEqual(
      versions,
      versions.toSorted((a, b) => a - b),
      `first appearances of ${key} are in order`,
    );
    assert.equal(new Set(versions).size, versions.length);
  }
  return { messages: expected.length, duplicates: read.length - expected.length };
}

async function untilPublished(database: pg.Pool): Promise<void> {
  const deadline = performance.now() + publishedWithinMs;
  for (;;) {
    const { rows } = await database.query<{ pending: string }>(
      'SELECT sum(pending) AS pending FROM twiceproof.outbox_pending',
    );
    if (Number(rows[0]?.pending) === 0) return;
    assert.ok(performance.now() < deadline, `${rows[0]?.pending} messages are still not published`);
    await delay(20);
  }
}

async function committed(database: pg.Pool, topics: readonly string[]): Promise<Read[]> {
  const { rows } = await database.query<Read>(
    `SELECT msg_id AS id, aggregate_id AS key, convert_from(payload, 'utf8') AS value FROM twiceproof.outbox o
     WHERE topic = ANY ($1) AND NOT EXISTS (SELECT FROM twiceproof.relay_parked p WHERE p.msg_id = o.msg_id)`,
    [topics],
  );
  return rows;
}

/** In these trials a record that is too large has a key of its own. Whatever else is broken passes, and parks nothing. */
async function parkedWithoutCause(database: pg.Pool, topics: readonly string[]): Promise<string[]> {
  const { rows } = await database.query<{ parked: string }>(
    `SELECT concat(aggregate_id, ': ', reason) AS parked FROM twiceproof.relay_parked
     WHERE topic = ANY ($1) AND aggregate_id NOT LIKE '%-large'`,
    [topics],
  );
  return rows.map(({ parked }) => parked);
}

/** Partition by partition in its order; a key is in one of them. */
async function readTopic(bootstrap: string, topic: string): Promise<Read[]> {
  const consumer = new Consumer({
    clientId: 'judge',
    groupId: `judge-${randomUUID()}`,
    bootstrapBrokers: bootstrap.split(','),
    autocommit: false,
    retries: 10,
    retryDelay: 250,
  });
  consumer.on('error', () => {});
  try {
    const ends = (await consumer.listOffsets({ topics: [topic], timestamp: -1n })).get(topic) ?? [];
    const total = ends.reduce((sum, end) => sum + Number(end), 0);
    const read: Read[] = [];
    if (total === 0) return read;
    const stream = await consumer.consume({ topics: [topic], mode: 'earliest', maxWaitTime: 100 });
    const readAll = async (): Promise<void> => {
      for await (const { key, value, headers } of stream) {
        const id = [...headers].find(([name]) => String(name) === 'ce_id')?.[1];
        read.push({ id: String(id), key: String(key), value: String(value) });
        if (read.length >= total) return;
      }
    };
    await within(readWithinMs, readAll(), () => `${read.length} of ${total} records of ${topic} came`);
    await stream.close();
    return read;
  } finally {
    await consumer.close(true);
  }
}
