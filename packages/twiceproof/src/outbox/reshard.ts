import { TwiceproofError } from '../errors.ts';
import { quotedSchema } from '../schema-name.ts';
import type { Tx } from '../tx.ts';
import { shardOf } from './append.ts';
import { countPending } from './pending.ts';

/**
 * Waits until every transaction that has appended has ended, and keeps others from appending until this one ends: whoever
 * appends reads the count of shards, and holds that table until its end. Relays do not need it and go on.
 */
export async function holdWriters(tx: Tx, schemaName?: string): Promise<void> {
  await tx.query(`LOCK TABLE ${quotedSchema(schemaName)}.settings IN ACCESS EXCLUSIVE MODE`);
}

/**
 * Changes the count, while writers are held and if everything is published: rows of one key may then be found in another
 * shard, and nothing of it is left in the old one.
 *
 * TRUNCATE, and not an update: a transaction that has an older snapshot would see the old count, and write to a shard that
 * nobody reads. So it sees no count at all, and fails.
 */
export async function changeShards(tx: Tx, shards: number, schemaName?: string): Promise<'changed' | 'pending'> {
  const schema = quotedSchema(schemaName);
  if (!Number.isInteger(shards) || shards < 1 || shards > 1024) {
    throw new TwiceproofError('TP_OPTION', `shards is a whole number from 1 to 1024, not ${shards}`);
  }
  // Relays hold these while they publish, and while they park.
  await tx.query(`SELECT shard FROM ${schema}.relay_cursor ORDER BY shard FOR UPDATE`);
  if ((await countPending(tx, 1, schemaName)) > 0) return 'pending';
  await tx.query(`TRUNCATE ${schema}.settings`);
  await tx.query(`INSERT INTO ${schema}.settings (shards) VALUES ($1)`, [shards]);
  await tx.query(`DELETE FROM ${schema}.relay_cursor`);
  await tx.query(
    `INSERT INTO ${schema}.relay_cursor (shard, prev, system_identifier)
     SELECT shard, pg_current_snapshot(), (SELECT system_identifier FROM pg_control_system())
     FROM generate_series(0, $1::int - 1) AS shard`,
    [shards],
  );
  // What comes of a parked key must find it there.
  await tx.query(`UPDATE ${schema}.relay_parked SET shard = ${shardOf('aggregate_id', '$1::int')}`, [shards]);
  return 'changed';
}
