/**
 * What the judge reads, and where it stands in this system. Each set becomes a temporary table of the judge's session,
 * `recon_<name>`. Every id is text there, so that anybody's ids will do.
 */
import pg from 'pg';

/** The columns of each set, with their types, in the order in which they are copied. */
export const columns = {
  /** Instead of a ledger: one row for each request, or for each intent. */
  intents: {
    tenant: 'text',
    operation: 'text',
    key: 'text',
    door: 'text',
    account_id: 'text',
    amount_cents: 'bigint',
    order_id: 'text',
    status: 'text',
    verdict: 'text',
    code: 'text',
    hash: 'text',
    told_order: 'text',
    told_version: 'int',
    told_status: 'text',
    told_ms: 'bigint',
  },
  orders: {
    order_id: 'text',
    tenant: 'text',
    account_id: 'text',
    amount_cents: 'bigint',
    status: 'text',
    version: 'int',
  },
  outbox: {
    msg_id: 'text',
    order_id: 'text',
    type: 'text',
    version: 'int',
    status: 'text',
    amount_cents: 'bigint',
    digest: 'text',
    at_ms: 'bigint',
  },
  parked: { msg_id: 'text', order_id: 'text' },
  claims: { tenant: 'text', operation: 'text', key: 'text' },
  inbox: { msg_id: 'text' },
  floor: { floor: 'text' },
  held: { seq: 'bigint', kind: 'text', msg_id: 'text', order_id: 'text' },
  charges: { charge_id: 'text', order_id: 'text', amount_cents: 'bigint' },
  effects: { id: 'bigint', consumer: 'text', msg_id: 'text', order_id: 'text', version: 'int' },
  states: { order_id: 'text', status: 'text', version: 'int' },
} as const;

export type SetName = keyof typeof columns;
/** A SELECT for each set; undefined for one that is left out. */
export type Sets = Readonly<Partial<Record<SetName, string>>>;

/** Where a set is read: those of one place are read in one snapshot, because they are written in one transaction. */
export const homes = {
  payments: ['inbox', 'floor', 'held', 'charges', 'effects', 'states'],
  orders: ['orders', 'outbox', 'parked', 'claims'],
} as const satisfies Record<string, readonly SetName[]>;

/**
 * Of this system. A payload that is no JSON, or holds no number where one should be, must lead to a conviction and not to
 * an error: nothing is known of it then. `effects`, `charges` and `states` are the consumer's business tables; nothing is
 * taken from the inbox on trust.
 */
export function ownSets({ topics, tenants }: { topics: readonly string[]; tenants: readonly string[] }): Sets {
  const list = (texts: readonly string[]): string => texts.map((text) => pg.escapeLiteral(text)).join(', ') || 'NULL';
  return {
    orders: `SELECT order_id, tenant, account_id, amount_cents, status, version FROM orders`,
    outbox: `SELECT msg_id, aggregate_id AS order_id, event_type AS type, ${valid('version', 'int')}, body ->> 'status' AS status,
        ${valid('amount_cents', 'bigint')}, md5(payload) AS digest, (date_part('epoch', created_at) * 1000)::bigint AS at_ms
      FROM (SELECT *, CASE WHEN payload IS JSON OBJECT THEN convert_from(payload, 'utf8')::json END AS body
        FROM twiceproof.outbox WHERE topic IN (${list(topics)}) OFFSET 0) AS events`,
    parked: `SELECT msg_id, aggregate_id AS order_id FROM twiceproof.relay_parked WHERE topic IN (${list(topics)})`,
    claims: `SELECT principal AS tenant, replace(operation, 'orders.', '') AS operation, idem_key AS key
      FROM twiceproof.idempotency_keys WHERE principal IN (${list(tenants)})`,
    inbox: `SELECT msg_id FROM twiceproof.inbox WHERE consumer = 'payments'`,
    floor: `SELECT floor FROM twiceproof.inbox_bounds`,
    held: `SELECT seq, kind, msg_id, aggregate_id AS order_id FROM twiceproof.held
      WHERE consumer = 'payments' AND topic IN (${list(topics)})`,
    charges: `SELECT charge_id, order_id, amount_cents FROM charges`,
    effects: `SELECT id, consumer, msg_id, order_id, version FROM effects`,
    states: `SELECT order_id, status, version FROM order_states`,
  };
}

/** A field of the body, if it is a number of this type. */
function valid(field: string, type: string): string {
  return `CASE WHEN pg_input_is_valid(body ->> '${field}', '${type}') THEN body ->> '${field}' END AS ${field}`;
}

export function createTable(name: SetName): string {
  const defined = Object.entries(columns[name]).map(([column, type]) => `${column} ${type}${collation(type)}`);
  return `CREATE TEMP TABLE recon_${name} (${defined.join(', ')})`;
}

/** Columns by their names, so that a SELECT may give them in any order, and leave out those that it does not need. */
export function selectAll(name: SetName, select: string, given: readonly string[]): string {
  const listed = Object.entries(columns[name]).map(
    ([column, type]) => `${given.includes(column) ? column : 'NULL'}::${type} AS ${column}`,
  );
  return `SELECT ${listed.join(', ')} FROM (${select}) AS one`;
}

/** Without these nothing can be compared. */
const needed: Record<SetName, readonly string[]> = {
  intents: ['operation', 'key', 'account_id'],
  orders: ['order_id', 'account_id'],
  outbox: ['msg_id', 'order_id', 'version'],
  parked: ['msg_id', 'order_id'],
  claims: ['tenant', 'operation', 'key'],
  inbox: ['msg_id'],
  floor: ['floor'],
  held: ['seq', 'kind', 'msg_id', 'order_id'],
  charges: ['charge_id', 'order_id'],
  effects: ['id', 'consumer', 'msg_id', 'order_id', 'version'],
  states: ['order_id', 'version'],
};

export function missingColumns(name: SetName, given: readonly string[]): string[] {
  return needed[name].filter((column) => !given.includes(column));
}

/** Ids are compared as bytes. */
export function collation(type: string): string {
  return type === 'text' ? ' COLLATE "C"' : '';
}
