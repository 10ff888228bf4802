import {
  groupOperation,
  handlerOperation,
  plannedOperation,
  type Caller,
  type Operation,
  type Outcome,
} from 'twiceproof/edge';
import { createOutbox } from 'twiceproof/outbox';
import { transaction, type Pool } from 'twiceproof/transaction';
import type { Tx } from 'twiceproof/tx';
import type { Create, SetStatus } from './commands.ts';
import {
  createOrder,
  insertOrders,
  orderColumns,
  planOrder,
  setStatuses,
  topic,
  type Append,
  type Created,
  type StatusSet,
} from './effects.ts';

export interface Operations {
  create: Operation<Create, Created>;
  setStatus: Operation<SetStatus, StatusSet>;
}

export type Shape = 'group' | 'handler';
export const baselines = ['no-database', 'none', 'outbox-only'] as const;
export type Baseline = (typeof baselines)[number];

const names = { create: 'orders.create', setStatus: 'orders.set-status' };
const outbox = createOutbox({ topics: [topic] });

/** The same operations in either shape. */
export function createOperations(
  { batchEveryMs, ...limits }: { pool: Pool; retentionMs?: number; admits?: () => boolean; batchEveryMs?: number },
  shape: Shape,
): Operations {
  const create = { ...limits, name: names.create };
  const setStatus = { ...limits, name: names.setStatus };
  if (shape === 'handler') {
    return {
      create: handlerOperation({ ...create, execute: async (tx, one, by) => createOrder(tx, outbox.append, one, by) }),
      setStatus: handlerOperation({ ...setStatus, execute: async (tx, one, by) => setOne(tx, outbox.append, one, by) }),
    };
  }
  return {
    create: plannedOperation({
      ...create,
      ...(batchEveryMs !== undefined && { batchEveryMs }),
      plan: planOrder,
      columns: orderColumns,
      statement: insertOrders,
      outbox,
    }),
    setStatus: groupOperation({
      ...setStatus,
      effects: (tx, all, by) => setStatuses(tx, outbox.append, all, by),
      // One statement cannot change a row twice, and each change is an event of its own.
      exclusive: ({ order_id }) => order_id,
    }),
  };
}

async function setOne(tx: Tx, how: Append, command: SetStatus, caller: Caller): Promise<Outcome<StatusSet>> {
  return (await setStatuses(tx, how, [command], [caller]))[0]!;
}

/**
 * To measure against, and for nothing else: a repeated request is a second order. `outbox-only` is one transaction
 * for each request; `none` has no message either, so that each statement is a transaction by itself, which is the
 * cheapest that a handler with a database can be; `no-database` forgets what it is told.
 */
export function createBaseline(pool: Pool & Tx, baseline: Baseline): Operations {
  const noOutbox: Append = async () => [];
  const nothing: Tx = { query: async () => ({ rows: [], rowCount: 0 }) };
  const run = async <T>(work: (tx: Tx, how: Append) => Promise<Outcome<T>>) => {
    const { code, result } =
      baseline === 'outbox-only'
        ? await transaction(pool, async (tx) => work(tx, outbox.append))
        : await work(baseline === 'none' ? pool : nothing, noOutbox);
    return { outcome: 'answered' as const, code, result, version: 1, replayed: false };
  };
  return {
    create: {
      name: names.create,
      run: async (by, command) => run(async (tx, how) => createOrder(tx, how, command, by)),
    },
    setStatus: {
      name: names.setStatus,
      run: async (by, command) => run(async (tx, how) => setOne(tx, how, command, by)),
    },
  };
}
