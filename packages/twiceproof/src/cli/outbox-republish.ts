import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from '../connection.ts';
import { shardOf } from '../outbox/append.ts';
import { quotedSchema } from '../schema-name.ts';
import type { SourcedMessage } from '../source.ts';
import type { PublishMessages } from '../sources/parked.ts';
import { publishingName } from '../sources/poll-statements.ts';
import { transaction } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { WrongCall, type Call, type Command } from './call.ts';
import { onDatabase, reading, saying } from './database.ts';
import { publishing, requireOwnCluster } from './publishing.ts';

export interface RepublishOptions {
  since: Date;
  topic?: string | undefined;
  aggregateId?: string | undefined;
  schema?: string | undefined;
  /** How many are published together, at most. Defaults to 500. */
  page?: number;
  /** Of payloads that are published together, unless one alone is larger. Defaults to 16 MiB. */
  pageBytes?: number;
  /** After each page. */
  onProgress?(sofar: Republished): void;
}

export interface Republished {
  messages: number;
  /** The broker will not take these: they were parked when they came first, and dropped. */
  rejected: string[];
  /** Why it did not come to its end. */
  stopped?: string;
}

const defaults = { page: 500, pageBytes: 16_777_216 };
/** Looking for them reads the whole log, so many are looked for at once. */
const placesAtOnce = 100_000;
const attempts = 5;
const pauseMs = 500;
const bounds = { lock_timeout: '20000', idle_in_transaction_session_timeout: '30000' };

/**
 * Publishes again what was published, with the same ids: for a broker that has lost records. Shard by shard, in the order
 * in which it was appended, and for each page the shard is held, so that the page stands in one piece before whatever
 * the relay publishes next. The log itself stays as it is.
 */
export async function republish(pool: Pool, publish: PublishMessages, options: RepublishOptions): Promise<Republished> {
  const limits = { ...defaults, ...options };
  const sofar: Republished = { messages: 0, rejected: [] };
  for (let shard = 0, after = 0n; ;) {
    const looking = reading(pool, (tx) => findPlaces(tx, options, shard, after));
    const places = await saying(() => options.onProgress?.(sofar), '', looking);
    if (places === 'no such shard') return sofar;
    for (const part of pagesOf(places, limits)) {
      const stopped = await severalTimes(async () => republishPage(pool, publish, { shard, part, options, sofar }));
      if (stopped) return { ...sofar, stopped: stopped.message };
      options.onProgress?.(sofar);
    }
    const isWhole = places.length < placesAtOnce;
    after = isWhole ? 0n : BigInt(places.at(-1)!.id);
    if (isWhole) shard += 1;
  }
}

/** Until it goes well; answers what was wrong the last time if it never does. Between the attempts the relay has its turn. */
async function severalTimes(attempt: () => Promise<Error | undefined>): Promise<Error | undefined> {
  let trouble: Error | undefined;
  for (let n = 0; n < attempts; n += 1) {
    await delay(n * pauseMs);
    trouble = await attempt();
    if (!trouble) return undefined;
  }
  return trouble;
}

interface Place {
  shard: number;
  xid: string;
  id: string;
  /** Of its payload. */
  bytes: number;
}

function pagesOf(
  places: readonly Place[],
  { page, pageBytes }: Required<Pick<RepublishOptions, 'page' | 'pageBytes'>>,
): Place[][] {
  const pages: Place[][] = [];
  let bytesInPage = 0;
  for (const place of places) {
    const last = pages.at(-1);
    bytesInPage += place.bytes;
    if (last && last.length < page && bytesInPage <= pageBytes) {
      last.push(place);
    } else {
      pages.push([place]);
      bytesInPage = place.bytes;
    }
  }
  return pages;
}

interface PageToPublish {
  shard: number;
  part: readonly Place[];
  options: RepublishOptions;
  sofar: Republished;
}

async function republishPage(
  pool: Pool,
  publish: PublishMessages,
  { shard, part, options, sofar }: PageToPublish,
): Promise<Error | undefined> {
  const schema = quotedSchema(options.schema);
  const work = async (tx: Tx): Promise<Error | undefined> => {
    await tx.query(`SELECT FROM ${schema}.relay_cursor WHERE shard = $1 FOR NO KEY UPDATE`, [shard]);
    const messages = await readMessages(tx, schema, part);
    const { rejected, trouble } = await publishAll(publish, messages);
    if (trouble) return trouble;
    sofar.messages += messages.length - rejected.length;
    sofar.rejected.push(...rejected);
    return undefined;
  };
  return transaction(pool, work, { localSettings: bounds, retries: 0 });
}

/** What is rejected is left out, and what was withheld for its sake is sent after all. */
async function publishAll(
  publish: PublishMessages,
  messages: readonly SourcedMessage[],
): Promise<{ rejected: string[]; trouble?: Error }> {
  const rejected: string[] = [];
  for (let open = messages; open.length > 0;) {
    const outcomes = await publish(open);
    const trouble = outcomes.find(({ outcome }) => outcome === 'refused' || outcome === 'unknown');
    if (trouble && 'error' in trouble) return { rejected, trouble: trouble.error };
    rejected.push(...open.filter((_, n) => outcomes[n]?.outcome === 'rejected').map(({ id }) => id));
    open = open.filter((_, n) => outcomes[n]?.outcome === 'withheld');
  }
  return { rejected };
}

/**
 * What is published and not parked, of the keys that belong to this shard today: rows that were written when the outbox had
 * another count of shards stand under another number.
 */
const chosen = (schema: string): string =>
  `FROM ${schema}.outbox o, (SELECT shards FROM ${schema}.settings) AS s
   WHERE o.created_at >= $1::timestamptz AND ($2::text IS NULL OR o.topic = $2) AND ($3::text IS NULL OR o.aggregate_id = $3)
     AND NOT EXISTS (SELECT FROM ${schema}.relay_parked p WHERE p.msg_id = o.msg_id)
     AND ${shardOf('o.aggregate_id', 's.shards')} = $4::int
     AND (pg_visible_in_snapshot(o.xid, $5::pg_snapshot)
       OR (o.shard = $4 AND $6::pg_snapshot IS NOT NULL AND o.id <= $7::bigint
           AND pg_visible_in_snapshot(o.xid, $6::pg_snapshot)))`;

async function chosenValues(tx: Tx, options: RepublishOptions, shard: number): Promise<unknown[] | undefined> {
  const { since, topic = null, aggregateId = null } = options;
  const { rows } = await tx.query(
    `SELECT prev::text, cur::text, last_id::text FROM ${quotedSchema(options.schema)}.relay_cursor WHERE shard = $1`,
    [shard],
  );
  const cursor = rows[0];
  return cursor && [since.toISOString(), topic, aggregateId, shard, cursor['prev'], cursor['cur'], cursor['last_id']];
}

async function findPlaces(
  tx: Tx,
  options: RepublishOptions,
  shard: number,
  after: bigint,
): Promise<Place[] | 'no such shard'> {
  const schema = quotedSchema(options.schema);
  const values = await chosenValues(tx, options, shard);
  if (!values) return 'no such shard';
  const { rows } = await tx.query(
    `SELECT o.shard, o.xid::text, o.id::text, octet_length(o.payload) AS bytes ${chosen(schema)} AND o.id > $8::bigint ORDER BY o.id LIMIT $9`,
    [...values, String(after), placesAtOnce],
  );
  return rows.map((row) => ({
    shard: Number(row['shard']),
    xid: String(row['xid']),
    id: String(row['id']),
    bytes: Number(row['bytes']),
  }));
}

/** Fewer than places, if some of them were pruned meanwhile. */
async function readMessages(tx: Tx, schema: string, places: readonly Place[]): Promise<SourcedMessage[]> {
  const { rows } = await tx.query(
    `SELECT o.topic, o.aggregate_id, o.msg_id, o.event_type, o.payload, o.headers::text,
       to_char(o.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS created_at
     FROM unnest($1::smallint[], $2::xid8[], $3::bigint[]) AS w (shard, xid, id)
     JOIN ${schema}.outbox o USING (shard, xid, id) ORDER BY o.id`,
    [places.map(({ shard }) => shard), places.map(({ xid }) => xid), places.map(({ id }) => id)],
  );
  return rows.map((row) => ({
    id: row['msg_id'] as string,
    topic: row['topic'] as string,
    aggregateId: row['aggregate_id'] as string,
    type: row['event_type'] as string,
    payload: row['payload'] as Buffer,
    createdAt: new Date(row['created_at'] as string),
    ...(row['headers'] !== null && { headers: JSON.parse(row['headers'] as string) as Record<string, string> }),
  }));
}

/** By topic. */
export async function countToRepublish(pool: Pool, options: RepublishOptions): Promise<Record<string, number>> {
  return reading(pool, async (tx) => {
    const counts: Record<string, number> = {};
    for (let shard = 0; ; shard += 1) {
      const values = await chosenValues(tx, options, shard);
      if (!values) return counts;
      const text = `SELECT o.topic, count(*)::int AS n ${chosen(quotedSchema(options.schema))} GROUP BY o.topic`;
      const { rows } = await tx.query(text, values);
      for (const { topic, n } of rows) counts[String(topic)] = (counts[String(topic)] ?? 0) + Number(n);
    }
  });
}

export const republishCommand: Command = {
  summary: 'publish again what was published: for a broker that has lost records',
  flags: ['schema', 'since', 'topic', 'aggregate', 'yes', 'brokers', 'name', 'max-record-bytes'],
  about:
    'The ids stay the same, so a consumer with an inbox runs each message once. Without --yes it only counts. What it\npromises about the order, and what it cannot, is in docs/operations.md.',
  async run(call) {
    const options: RepublishOptions = {
      since: timeOf(call),
      topic: call.text('topic'),
      aggregateId: call.text('aggregate'),
      schema: call.schema,
    };
    if (call.has('yes')) for (const flag of ['name', 'brokers'] as const) call.required(flag);
    return onDatabase(async (pool) => {
      await requireOwnCluster(pool, call.schema);
      if (!call.has('yes')) {
        const topics = await saying(call.progress, 'counting ...', countToRepublish(pool, options));
        const lines = Object.entries(topics).map(([topic, n]) => `${topic}: ${n}`);
        call.answer({ outcome: 'counted', topics }, [...lines, 'To publish them again: --yes'].join('\n'));
        return 0;
      }
      return publishing(call, async (publish) => {
        const onProgress = ({ messages }: Republished): void => call.progress(`${messages} published ...`);
        const done = await republish(pool, publish, { ...options, onProgress });
        const notes = [
          ...(done.rejected.length > 0 ? [`Not taken by the broker: ${done.rejected.join(', ')}`] : []),
          ...(done.stopped ? [`Stopped: ${done.stopped}\n  Run it again, from the same time.`] : []),
        ];
        call.answer(
          { outcome: done.stopped ? 'stopped' : 'published', ...done },
          [`Published again: ${done.messages}.`, ...notes].join('\n'),
        );
        return notes.length === 0 ? 0 : 1;
      });
    }, publishingName);
  },
};

function timeOf(call: Call): Date {
  const text = call.required('since');
  const since = new Date(text);
  const day = text.slice(0, 10);
  // Without a zone it would be another time on another machine; and a 30th of February is taken for a day of March.
  const isTime = /^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$/.test(text) && !Number.isNaN(since.getTime());
  if (!isTime || new Date(day).toISOString().slice(0, 10) !== day) {
    throw new WrongCall(`--since is a time with its zone, as 2026-03-01T12:00:00Z, not '${text}'`);
  }
  return since;
}
