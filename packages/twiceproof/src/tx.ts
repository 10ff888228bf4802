import { TwiceproofError } from './errors.ts';

/**
 * An open database transaction, as little of it as this package needs. A `pg` client inside a
 * transaction satisfies it as it is. Whatever writes takes a `Tx` as its first argument, so that
 * what is atomic with what can be seen where it is called.
 */
export interface Tx {
  query(text: string, values?: unknown[]): Promise<{ rows: Record<string, unknown>[]; rowCount: number | null }>;
}

/** What a handle may offer besides, as a `pg` client does: `T` is inside a transaction, `E` inside one that has failed. */
export interface KnowsItsState {
  getTransactionStatus?(): 'I' | 'T' | 'E' | null;
}

/**
 * Refuses a handle that is not inside a transaction: what it wrote would be committed by itself, and
 * the business rows with it or without it. A handle that does not know its state costs a round trip more.
 */
export async function requireTransaction(tx: Tx & KnowsItsState, schema: string): Promise<void> {
  const { totalCount, connect } = tx as { totalCount?: unknown; connect?: unknown };
  if (typeof connect === 'function' && totalCount !== undefined) {
    throw new TwiceproofError(
      'TP_NOT_IN_TRANSACTION',
      'this is a pool: each of its queries is a transaction of its own',
    );
  }
  // Null is what a client says that has not heard from its server yet.
  const state = tx.getTransactionStatus?.() ?? undefined;
  const isInside = state === undefined ? await canLock(tx, schema) : state !== 'I';
  if (!isInside)
    throw new TwiceproofError('TP_NOT_IN_TRANSACTION', 'no transaction was begun on this handle, or it has ended');
}

/** The server takes LOCK TABLE only inside a transaction, and this lock stands in nobody's way. */
async function canLock(tx: Tx, schema: string): Promise<boolean> {
  try {
    await tx.query(`LOCK TABLE ${schema}.settings IN ACCESS SHARE MODE`);
    return true;
  } catch (error) {
    if ((error as { code?: unknown }).code === '25P01') return false;
    throw error;
  }
}
