import { hash } from 'node:crypto';
import { arrayText } from './array-text.ts';
import type { NamesStatements, PoolClient, QueryResult } from './connection.ts';
import type { Tx } from './tx.ts';

export type RunStatement = (client: PoolClient, text: string, values: unknown[]) => Promise<QueryResult>;

/**
 * A statement with a name is parsed once on a connection, and soon planned once. Its name is made of its text, so that it
 * never means another statement, whoever else shares the connection.
 *
 * A pooler that gives each transaction another connection may not carry names along: then the server says that it does not
 * know one, or that it has it already. Nothing was carried out, and from then on all go without names.
 */
export function createNamedStatements(named = true): RunStatement {
  const names = new Map<string, string>();
  let isNamed = named;
  return async (client, text, values) => {
    const sent = values.map((value) => (Array.isArray(value) ? (arrayText(value) ?? value) : value));
    if (!isNamed) return client.query(text, sent);
    const name = names.get(text) ?? `twiceproof_${hash('sha256', text, 'hex').slice(0, 16)}`;
    names.set(text, name);
    try {
      const result = await (client as unknown as NamesStatements).query({ name, text, values: sent });
      // The client's own record of a statement is found to outlive it by some collections of garbage; a batch in it would too.
      sent.length = 0;
      return result;
    } catch (error) {
      if (isNameLost(error)) isNamed = false;
      throw error;
    }
  };
}

export function isNameLost(error: unknown): boolean {
  return ['26000', '42P05'].includes(String((error as { code?: unknown } | undefined)?.code));
}

/** What a transaction of ours can do besides. */
export interface NamesItsStatements {
  queryNamed: Tx['query'];
}

/** For statements of our own: those of a handler are its own business, and may be different each time. */
export async function queryNamed(tx: Tx, text: string, values: unknown[]): ReturnType<Tx['query']> {
  const { queryNamed: named } = tx as Tx & Partial<NamesItsStatements>;
  return named ? named(text, values) : tx.query(text, values);
}

/**
 * A plan that was made while a table was empty reads it from end to end, and is kept when the table has grown. So a
 * connection with such plans is closed after this time.
 */
const plansKeptMs = 60_000;
const firstUsedAt = new WeakMap<PoolClient, number>();

export function arePlansPast(client: PoolClient, nowMs: number): boolean {
  const since = firstUsedAt.get(client);
  if (since === undefined) firstUsedAt.set(client, nowMs);
  return since !== undefined && nowMs - since > plansKeptMs;
}
