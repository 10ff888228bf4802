/**
 * An open database transaction, as little of it as this package needs. A `pg` client inside a
 * transaction satisfies it as it is. Whatever writes takes a `Tx` as its first argument, so that
 * what is atomic with what can be seen where it is called.
 */
export interface Tx {
  query(text: string, values?: unknown[]): Promise<{ rows: Record<string, unknown>[]; rowCount: number | null }>;
}
