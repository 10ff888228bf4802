import { quotedSchema } from '../schema-name.ts';

/**
 * The least that each program needs, by role. Nobody but the migrator may change a row of the outbox: it is a log.
 * Business tables are yours to grant. A consumer that also sends needs `tp_app` besides.
 *
 * The keeper of the inbox makes and drops partitions, and the server lets nobody do so but the owner of the table: it runs
 * as the migrator, or as a member of its role. Consumers need no right to the partitions: theirs to the whole is enough.
 */
export const grants: Readonly<Record<string, readonly string[]>> = {
  tp_app: [
    'INSERT ON outbox',
    'SELECT ON settings',
    'SELECT, INSERT ON idempotency_keys',
    'SELECT, INSERT ON answers',
    'SELECT ON outbox_pending',
    // For the pending guard.
    'SELECT ON outbox_places',
    'SELECT ON relay_cursor',
  ],
  tp_relay: [
    'SELECT ON outbox',
    'SELECT ON settings',
    'SELECT, UPDATE ON relay_cursor',
    'SELECT, INSERT, DELETE ON relay_parked',
    'SELECT ON outbox_pending',
    'SELECT ON outbox_places',
  ],
  // Also for operators: `twiceproof held`.
  tp_consumer: [
    'SELECT ON settings',
    'SELECT ON inbox_bounds',
    'SELECT, INSERT ON inbox',
    'SELECT, INSERT, UPDATE ON inbox_position',
    'SELECT, INSERT, UPDATE, DELETE ON held',
    'SELECT, INSERT ON held_settled',
  ],
  tp_sweeper: ['SELECT, DELETE ON idempotency_keys', 'SELECT, DELETE ON answers'],
  tp_audit: [
    'SELECT ON outbox',
    'SELECT ON settings',
    'SELECT ON relay_cursor',
    'SELECT ON relay_parked',
    'SELECT ON outbox_pending',
    'SELECT ON outbox_places',
    'SELECT ON idempotency_keys',
    'SELECT ON answers',
    'SELECT ON migrations',
    'SELECT ON inbox_bounds',
    'SELECT ON inbox',
    'SELECT ON inbox_position',
    'SELECT ON held',
    'SELECT ON held_settled',
  ],
};

/** SQL that may be run again: roles that exist are kept. Give them to the users that your programs log in as. */
export function rolesSql(schemaName?: string): string {
  const schema = quotedSchema(schemaName);
  return Object.entries(grants)
    .map(([role, rights]) =>
      [
        `DO $$ BEGIN CREATE ROLE ${role} NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;`,
        `GRANT USAGE ON SCHEMA ${schema} TO ${role};`,
        ...rights.map((right) => `GRANT ${right.replace(' ON ', ` ON ${schema}.`)} TO ${role};`),
      ].join('\n'),
    )
    .join('\n\n');
}
