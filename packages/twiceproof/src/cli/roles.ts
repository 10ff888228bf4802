import { quotedSchema } from '../schema-name.ts';

/**
 * The least that each program needs, by role. Nobody but the migrator may change a row of the outbox: it is a log.
 * Business tables are yours to grant.
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
