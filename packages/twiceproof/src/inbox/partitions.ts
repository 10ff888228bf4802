/**
 * The inbox is cut by the time inside the ids, and forgets by whole partitions. Two bounds, in one row, say what it
 * remembers: from the floor to below the ceiling. They are tested by the statement that accepts (accept.ts).
 *
 * The order of things, and each of them is committed before the next:
 *
 * - to forget: raise the floor; detach the partitions below it (CONCURRENTLY, which makes nobody wait); drop them.
 *   Whoever has read the old floor either finds its duplicate still there, or no partition, and fails. Were a partition
 *   emptied instead, a message that was processed would be new again. Were it dropped before the floor is raised, whoever
 *   has an id of it would fail until then: for ever, if nobody does it.
 * - to grow: make the partition; attach it; raise the ceiling.
 *
 * The floor only rises, and no partition is made below it again: not for a longer retention, nor by a clock that was set
 * back. What was forgotten stays forgotten, and is `late`.
 */
import { quotedSchema } from '../schema-name.ts';
import type { Tx } from '../tx.ts';

export interface Bounds {
  /** As times. */
  floorMs: number;
  ceilingMs: number;
}

export interface InboxPartition {
  /** Ready to stand in SQL. */
  name: string;
  fromMs: number;
  toMs: number;
  /** `detaching`: somebody began, and died or waits for somebody; `detached`: somebody died before he dropped it. */
  state: 'attached' | 'detaching' | 'detached';
}

/** The first id of a time. */
export function firstIdOf(timeMs: number): string {
  const hex = timeMs.toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}

function timeOfBound(id: unknown): number {
  return Number.parseInt(String(id).replaceAll('-', '').slice(0, 12), 16);
}

/** By the clock of the database: those of the services may differ. */
export async function readInbox(
  tx: Tx,
  schemaName?: string,
): Promise<{ nowMs: number; bounds: Bounds | undefined; partitions: InboxPartition[] }> {
  const schema = quotedSchema(schemaName);
  // The times are in the names, and the names are ours: each is made together with its bounds, in one transaction.
  const { rows } = await tx.query(
    `SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint::text AS now,
       (SELECT floor FROM ${schema}.inbox_bounds) AS floor, (SELECT ceiling FROM ${schema}.inbox_bounds) AS ceiling,
       (SELECT json_agg(json_build_object('name', c.relname, 'state',
          CASE WHEN i.inhdetachpending THEN 'detaching' WHEN i.inhrelid IS NULL THEN 'detached' ELSE 'attached' END))
        FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
        WHERE c.relnamespace = to_regnamespace('${schema}') AND c.relkind = 'r' AND c.relname ~ '^inbox_[0-9]+_[0-9]+$')::text
         AS found`,
  );
  const { now, floor, ceiling, found } = rows[0]!;
  const named = JSON.parse((found as string | null) ?? '[]') as Pick<InboxPartition, 'name' | 'state'>[];
  const partitions = named.map(({ name, state }) => {
    const [fromMs, toMs] = name.split('_').slice(1).map(Number);
    return { name: `${schema}."${name}"`, state, fromMs: fromMs!, toMs: toMs! };
  });
  return {
    nowMs: Number(now),
    bounds: floor === null ? undefined : { floorMs: timeOfBound(floor), ceilingMs: timeOfBound(ceiling) },
    partitions: partitions.toSorted((a, b) => a.fromMs - b.fromMs),
  };
}

/** The first time that anybody keeps this inbox: it remembers from here on. */
export async function openInbox(tx: Tx, fromMs: number, schemaName?: string): Promise<void> {
  await tx.query(
    `INSERT INTO ${quotedSchema(schemaName)}.inbox_bounds (floor, ceiling) VALUES ($1, $1) ON CONFLICT DO NOTHING`,
    [firstIdOf(fromMs)],
  );
}

/** Never lowers it. A ceiling that was left below, because nobody kept the inbox for long, comes along. */
export async function raiseFloor(tx: Tx, toMs: number, schemaName?: string): Promise<void> {
  await tx.query(
    `UPDATE ${quotedSchema(schemaName)}.inbox_bounds SET floor = $1, ceiling = GREATEST(ceiling, $1) WHERE floor < $1`,
    [firstIdOf(toMs)],
  );
}

/** Only one at a time makes partitions; nobody who accepts waits for this. */
export async function lockBounds(tx: Tx, schemaName?: string): Promise<void> {
  await tx.query(`SELECT FROM ${quotedSchema(schemaName)}.inbox_bounds FOR UPDATE`);
}

/** By ATTACH, for which nobody waits, where CREATE ... PARTITION OF would make all wait behind one open transaction. */
export async function addInboxPartition(
  tx: Tx,
  { fromMs, toMs }: { fromMs: number; toMs: number },
  schemaName?: string,
): Promise<void> {
  const schema = quotedSchema(schemaName);
  const name = `${schema}."inbox_${fromMs}_${toMs}"`;
  await tx.query(`CREATE TABLE ${name} (LIKE ${schema}.inbox INCLUDING ALL)`);
  // Asked by its key alone: see sql/0005_no_statistics_of_keys.sql.
  const alter = ['msg_id', 'consumer', 'content_hash', 'processed_at'].map((each) => `ALTER ${each} SET STATISTICS 0`);
  await tx.query(`ALTER TABLE ${name} ${alter.join(', ')}`);
  // It goes by the owner of the whole: another keeper, who is another member of that role, may have to drop it.
  await tx.query(
    `DO $$ DECLARE its name = (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = '${schema}.inbox'::regclass);
     BEGIN IF its <> current_user THEN EXECUTE format('ALTER TABLE ${name} OWNER TO %I', its); END IF; END $$`,
  );
  await tx.query(
    `ALTER TABLE ${schema}.inbox ATTACH PARTITION ${name} FOR VALUES FROM ('${firstIdOf(fromMs)}') TO ('${firstIdOf(toMs)}')`,
  );
}

export async function raiseCeiling(tx: Tx, toMs: number, schemaName?: string): Promise<void> {
  await tx.query(`UPDATE ${quotedSchema(schemaName)}.inbox_bounds SET ceiling = $1 WHERE ceiling < $1`, [
    firstIdOf(toMs),
  ]);
}

/** Statements to be sent one by one, outside of any transaction: the server takes CONCURRENTLY nowhere else. */
export function forgetPartition({ name, state }: InboxPartition, schemaName?: string): string[] {
  const detach = `ALTER TABLE ${quotedSchema(schemaName)}.inbox DETACH PARTITION ${name}`;
  const how = { attached: [`${detach} CONCURRENTLY`], detaching: [`${detach} FINALIZE`], detached: [] };
  return [...how[state], `DROP TABLE ${name}`];
}

/** From `fromMs` up to at least `untilMs`, cut at whole multiples of the width. */
export function rangesTo(fromMs: number, untilMs: number, widthMs: number): { fromMs: number; toMs: number }[] {
  const ranges: { fromMs: number; toMs: number }[] = [];
  for (let from = fromMs; from < untilMs;) {
    const to = (Math.floor(from / widthMs) + 1) * widthMs;
    ranges.push({ fromMs: from, toMs: to });
    from = to;
  }
  return ranges;
}
