import { groupOperation, handlerOperation, type Operation, type Outcome } from 'twiceproof/edge';
import { createOutbox } from 'twiceproof/outbox';
import { transaction, type Pool } from 'twiceproof/transaction';
import type { Tx } from 'twiceproof/tx';
import type { Create, SetStatus } from './commands.ts';
import { createOrders, setStatuses, topic, type Append, type Created, type StatusSet } from './effects.ts';

export interface Operations {
  create: Operation<Create, Created>;
  setStatus: Operation<SetStatus, StatusSet>;
}

export type Shape = 'group' | 'handler';
export const baselines = ['no-database', 'none', 'outbox-only'] as const;
export type Baseline = (typeof baselines)[number];

const names = { create: 'orders.create', setStatus: 'orders.set-status' };
const { append } = createOutbox({ topics: [topic] });

/** The same operations in either shape. */
export function createOperations(pool: Pool, shape: Shape): Operations {
  if (shape === 'group') {
    return {
      create: groupOperation({ pool, name: names.create, effects: (tx, all) => createOrders(tx, append, all) }),
      setStatus: groupOperation({
        pool,
        name: names.setStatus,
        effects: (tx, all) => setStatuses(tx, append, all),
        // One statement cannot change a row twice, and each change is an event of its own.
        exclusive: ({ order_id }) => order_id,
      }),
    };
  }
  return {
    create: handlerOperation({ pool, name: names.create, execute: async (tx, one) => createOne(tx, append, one) }),
    setStatus: handlerOperation({ pool, name: names.setStatus, execute: async (tx, one) => setOne(tx, append, one) }),
  };
}

async function createOne(tx: Tx, how: Append, command: Create): Promise<Outcome<Created>> {
  return (await createOrders(tx, how, [command]))[0]!;
}

async function setOne(tx: Tx, how: Append, command: SetStatus): Promise<Outcome<StatusSet>> {
  return (await setStatuses(tx, how, [command]))[0]!;
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
        ? await transaction(pool, async (tx) => work(tx, append))
        : await work(baseline === 'none' ? pool : nothing, noOutbox);
    return { outcome: 'answered' as const, code, result, version: 1, replayed: false };
  };
  return {
    create: { name: names.create, run: async (_, command) => run(async (tx, how) => createOne(tx, how, command)) },
    setStatus: { name: names.setStatus, run: async (_, command) => run(async (tx, how) => setOne(tx, how, command)) },
  };
}
