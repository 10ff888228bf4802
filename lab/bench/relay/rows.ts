/** The three forms of an outbox, each filled by SQL of our own with the same messages: 160 bytes of payload, 10,007 keys. */

/** `ours` is that of the relay; the others are those of the baselines. */
export const shapes = ['ours', 'textbook', 'peer'] as const;
export type Shape = (typeof shapes)[number];

/** SQL expressions: parameters, or values that are written into the text. */
interface Places {
  from: string;
  to: string;
  /** In the payload, by which a reader tells what was written when. */
  phase: string;
  topic: string;
  shards: string;
  seed: string;
}

/**
 * Rows `from` to `to`. `at` is the server's clock in microseconds when the row is written, which is just before the commit:
 * the statement is a transaction by itself. So what is measured from there includes the commit.
 */
function insertText(shape: Shape, { from, to, phase, topic, shards, seed }: Places): string {
  const messages = `SELECT n, (n * 7919 + ${seed}) % 10007 AS key,
      '{"at":' || (1e6 * extract(epoch FROM clock_timestamp()))::bigint || ',"phase":' || ${phase} || ',"n":' || n ||
      ',"status":"created","note":"${'x'.repeat(80)}"}' AS text,
      '{"traceparent":"00-' || lpad(to_hex(n), 32, '0') || '-b7ad6b7169203331-01"}' AS trace
    FROM generate_series(${from}, ${to}) AS n`;
  if (shape === 'ours') {
    return `INSERT INTO twiceproof.outbox (shard, topic, aggregate_id, msg_id, event_type, payload, headers)
      SELECT (key % ${shards})::smallint, ${topic}, 'order-' || key, uuidv7(), 'order.created',
        convert_to(text, 'UTF8'), trace::json
      FROM (${messages}) AS m`;
  }
  if (shape === 'textbook') {
    return `INSERT INTO outbox (topic, aggregate_id, msg_id, event_type, payload, headers)
      SELECT ${topic}, 'order-' || key, uuidv7(), 'order.created', convert_to(text, 'UTF8'), trace::json
      FROM (${messages}) AS m`;
  }
  // Its topic is a flag of the program.
  return `INSERT INTO outbox (id, aggregate_type, aggregate_id, message_type, concurrency, payload, metadata)
    SELECT uuidv7(), 'order', 'order-' || key, 'order.created', 'parallel', text::jsonb, trace::jsonb
    FROM (${messages}) AS m`;
}

export interface WrittenRows {
  from: number;
  count: number;
  phase: number;
  topic: string;
  shards: number;
  /** Which keys come in which order. */
  seed: number;
}

export interface Insert {
  name: string;
  text: string;
  values: unknown[];
}

/** A transaction by itself. */
export function insertRows(shape: Shape, { from, count, phase, topic, shards, seed }: WrittenRows): Insert {
  const values = [from, from + count - 1, phase, seed];
  const places = { from: '$1::bigint', to: '$2::bigint', phase: '$3::int', seed: '$4::bigint' };
  // A parameter that a statement does not use has no type.
  const more = { ours: [topic, shards], textbook: [topic], peer: [] }[shape];
  const text = insertText(shape, { ...places, topic: '$5::text', shards: '$6::int' });
  return { name: 'insert', text, values: [...values, ...more] };
}

const rowsInTransaction = 100;

/** A backlog: from many transactions, as a relay that was away finds it. Not inside a transaction. */
export function fillText(
  shape: Shape,
  { rows, topic, shards, seed }: Pick<WrittenRows, 'topic' | 'shards' | 'seed'> & { rows: number },
): string {
  if (!/^[\w-]+$/.test(topic)) throw new Error(`not a topic: ${topic}`);
  const insert = insertText(shape, {
    from: 'first',
    to: `least(first + ${rowsInTransaction - 1}, ${Math.trunc(rows)})`,
    phase: '0',
    topic: `'${topic}'::text`,
    shards: String(Math.trunc(shards)),
    seed: String(Math.trunc(seed)),
  });
  return `DO $fill$
    DECLARE first bigint := 1;
    BEGIN
      WHILE first <= ${Math.trunc(rows)} LOOP
        ${insert};
        COMMIT;
        first := first + ${rowsInTransaction};
      END LOOP;
    END $fill$`;
}
