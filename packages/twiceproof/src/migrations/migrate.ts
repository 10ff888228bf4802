import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { TwiceproofError } from '../errors.ts';
import { quotedSchema } from '../schema-name.ts';
import { transaction, type Pool } from '../transaction.ts';
import type { Tx } from '../tx.ts';

export interface MigrateOptions {
  /** Defaults to `twiceproof`. */
  schema?: string;
  /**
   * Into how many shards the outbox is divided, each of which one relay publishes at a time. More than
   * one pays only with relays on several machines. Defaults to 1.
   * Only the first migration sets it.
   */
  shards?: number;
}

/** `src/migrations` and `dist/migrations` are equally deep. */
const folder = join(import.meta.dirname, '../../sql');

export interface Migration {
  number: number;
  name: string;
  sql: string;
}

/** The numbered files of `sql/`, in order, for this schema: as they are applied, and as `twiceproof sql` prints them. */
export function migrations(schema?: string): Migration[] {
  const quoted = quotedSchema(schema);
  return readdirSync(folder)
    .filter((file) => /^\d{4}_.*\.sql$/.test(file))
    .toSorted()
    .map((file) => ({
      number: Number(file.slice(0, 4)),
      name: file,
      // As psql does it, so that the files can be run by hand: psql -v schema=twiceproof -f ...
      sql: readFileSync(join(folder, file), 'utf8').replaceAll(':"schema"', quoted),
    }));
}

/**
 * All of it as one text, for people who use another tool: what it leaves is what `migrate` leaves, which then finds nothing
 * to do.
 */
export function migrationSql(options: MigrateOptions = {}): string {
  const schema = quotedSchema(options.schema);
  const shards = checkedShards(options);
  const parts = migrations(options.schema).map(
    ({ number, name, sql }) =>
      `-- ${name}\n${sql}\nINSERT INTO ${schema}.migrations (number, name) VALUES (${number}, '${name}');`,
  );
  const [settings, cursors] = initialStatements(schema);
  return [
    ...beginStatements(schema).map((text) => `${text};`),
    ...parts,
    `${settings.replace('$1', String(shards))};`,
    `${cursors};`,
  ].join('\n\n');
}

/**
 * Applies what is missing, each migration in a transaction of its own, and answers their names. Several
 * programs may do so at once: they take turns, and each finds what the one before has done. What fails
 * leaves the database at the migration before, from where the next call goes on.
 */
export async function migrate(pool: Pool, options: MigrateOptions = {}): Promise<string[]> {
  const schema = quotedSchema(options.schema);
  const shards = checkedShards(options);
  await inTurn(pool, schema, (tx) => begin(tx, schema));
  const applied: string[] = [];
  for (const migration of migrations(options.schema)) {
    if (await inTurn(pool, schema, (tx) => apply(tx, schema, migration))) applied.push(migration.name);
  }
  await inTurn(pool, schema, (tx) => initialise(tx, schema, shards));
  return applied;
}

/** A lock of the transaction and not of the session, since a pooler gives each transaction another session. */
async function inTurn<T>(pool: Pool, schema: string, work: (tx: Tx) => Promise<T>): Promise<T> {
  return transaction(pool, async (tx) => {
    await tx.query('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [`twiceproof migrate ${schema}`]);
    return work(tx);
  });
}

function checkedShards({ shards = 1 }: MigrateOptions): number {
  if (Number.isInteger(shards) && shards >= 1 && shards <= 1024) return shards;
  throw new TwiceproofError('TP_OPTION', `shards is a whole number from 1 to 1024, not ${shards}`);
}

async function begin(tx: Tx, schema: string): Promise<void> {
  for (const text of beginStatements(schema)) await tx.query(text);
}

function beginStatements(schema: string): string[] {
  return [
    `CREATE SCHEMA IF NOT EXISTS ${schema}`,
    `CREATE TABLE IF NOT EXISTS ${schema}.migrations (
    number int PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
  )`,
  ];
}

async function apply(tx: Tx, schema: string, { number, name, sql }: Migration): Promise<boolean> {
  const { rowCount } = await tx.query(`SELECT 1 FROM ${schema}.migrations WHERE number = $1`, [number]);
  if (rowCount) return false;
  await tx.query(sql);
  await tx.query(`INSERT INTO ${schema}.migrations (number, name) VALUES ($1, $2)`, [number, name]);
  return true;
}

/** Each shard begins at what is there now: an outbox that is new has nothing to publish. */
async function initialise(tx: Tx, schema: string, shards: number): Promise<void> {
  const [settings, cursors] = initialStatements(schema);
  await tx.query(settings, [shards]);
  await tx.query(cursors);
}

function initialStatements(schema: string): [settings: string, cursors: string] {
  return [
    `INSERT INTO ${schema}.settings (shards) VALUES ($1) ON CONFLICT DO NOTHING`,
    `INSERT INTO ${schema}.relay_cursor (shard, prev, system_identifier)
    SELECT shard, pg_current_snapshot(), (SELECT system_identifier FROM pg_control_system())
    FROM ${schema}.settings, generate_series(0, shards - 1) AS shard
    ON CONFLICT DO NOTHING`,
  ];
}
