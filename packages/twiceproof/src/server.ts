import type { Tx } from './tx.ts';

/** Why this server must not be trusted with what clients are told to be done; empty if it may be. */
export async function serverProblems(tx: Tx): Promise<string[]> {
  const { rows } = await tx.query(
    `SELECT pg_is_in_recovery() AS standby, current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes`,
  );
  const { standby, fsync, full_page_writes } = rows[0]!;
  return [
    ...(standby ? ['it is a standby: connect to the primary'] : []),
    ...(fsync === 'off' ? ['fsync is off: what was committed is lost when the machine stops'] : []),
    ...(full_page_writes === 'off' ? ['full_page_writes is off: a torn page can destroy what was committed'] : []),
  ];
}
