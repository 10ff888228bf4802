/** The judge's session: temporary tables, so that nothing is left behind, and what is worked out from them beforehand. */
import type pg from 'pg';
import { copyIn } from './copy.ts';
import { linesOf, type Ledger } from './ledger.ts';
import { contradicts } from './invariants.ts';
import { collation, columns, createTable, type SetName } from './sets.ts';
import { Undecided } from './undecided.ts';

const ledgerTables = {
  /** Lines `i` and `o` as they are; `ledger` is set for each file by its default. */
  calls: {
    kind: 'text',
    invocation: 'bigint',
    us: 'bigint',
    door: 'text',
    operation: 'text',
    key: 'text',
    attempt: 'int',
    target: 'text',
    order_id: 'text',
    account_id: 'text',
    amount_cents: 'bigint',
    status: 'text',
  },
  answers: {
    kind: 'text',
    invocation: 'bigint',
    us: 'bigint',
    verdict: "text CHECK (verdict IN ('ok', 'fail', 'unknown'))",
    code: 'text',
    hash: 'text',
    order_id: 'text',
    version: 'int',
    status: 'text',
    reason: 'text',
  },
} as const;

const messageColumns = {
  topic: 'text',
  partition: 'int',
  position: 'bigint',
  at_ms: 'bigint',
  msg_id: 'text',
  key: 'text',
  type: 'text',
  digest: 'text',
  record: 'text',
} as const;

const defined = (spec: Record<string, string>): string =>
  Object.entries(spec)
    .map(([name, type]) => `${name} ${type}${collation(type)}`)
    .join(', ');

/** One statement after the other works on millions of rows; the server has others to serve. */
const settings = `SET work_mem = '128MB'; SET temp_buffers = '64MB'; SET jit = off; SET default_statistics_target = 10`;

export async function createTables(judge: pg.Client): Promise<void> {
  await judge.query(settings);
  for (const name of Object.keys(columns) as SetName[]) await judge.query(createTable(name));
  await judge.query('CREATE TEMP TABLE recon_parked_before (LIKE recon_parked)');
  await judge.query(`CREATE TEMP TABLE recon_messages (${defined(messageColumns)})`);
  for (const [name, spec] of Object.entries(ledgerTables)) {
    await judge.query(`CREATE TEMP TABLE recon_${name} (${defined(spec)}, ledger int)`);
  }
}

export async function loadLedger(judge: pg.Client, ledger: Ledger, tenant: string, n: number): Promise<number> {
  let rows = 0;
  for (const [name, kind] of [
    ['calls', 'i'],
    ['answers', 'o'],
  ] as const) {
    await judge.query(`ALTER TABLE recon_${name} ALTER COLUMN ledger SET DEFAULT ${n}`);
    const named = Object.keys(ledgerTables[name]).join(', ');
    rows += await copyIn(judge, `COPY recon_${name} (${named}) FROM STDIN`, linesOf(ledger, kind));
    // Nobody else does it for a temporary table, and without it the join below compares each with each.
    await judge.query(`ANALYZE recon_${name}`);
  }
  await judge.query(
    `INSERT INTO recon_intents
     SELECT $1, c.operation, c.key, c.door, c.account_id, c.amount_cents, c.order_id, c.status,
       coalesce(a.verdict, 'unknown'), a.code, a.hash, a.order_id, a.version, a.status, $2::bigint + a.us / 1000
     FROM recon_calls c LEFT JOIN recon_answers a USING (ledger, invocation) WHERE ledger = ${n}`,
    [tenant, ledger.startMs],
  );
  await requireSound(judge, ledger.path);
  return rows;
}

/** A ledger whose lines do not fit together proves nothing: one request, one line, and at most one outcome of it. */
async function requireSound(judge: pg.Client, path: string): Promise<void> {
  const { rows } = await judge.query<{ sound: boolean }>(
    `SELECT (SELECT count(*) FROM recon_calls) = count(*)
       AND (SELECT count(*) FROM recon_answers) = count(told_ms) AS sound FROM recon_intents`,
  );
  if (!rows[0]!.sound) throw new Undecided(`${path} has outcomes without a request, or two lines for one`);
}

/**
 * One row for each intent; which orders are this run's; and rows of other runs go, which may stand in the same tables.
 * The load generator draws accounts from a range of its seed, so the account of an order says which run it is of. Orders of
 * other ranges are counted: whoever knows that his tables are of these runs alone can tell that there must be none.
 */
export async function prepare(judge: pg.Client, { byLedger }: { byLedger: boolean }): Promise<void> {
  // Nobody else looks at temporary tables, and without numbers the planner guesses.
  await judge.query(`ANALYZE ${[...Object.keys(columns), 'messages'].map((name) => `recon_${name}`).join(', ')}`);
  await judge.query(
    `CREATE TEMP TABLE recon_keys AS
     SELECT tenant, operation, key, min(account_id) AS account_id, min(amount_cents) AS amount_cents,
       min(order_id) AS order_id, min(status) AS status, count(*)::int AS requests,
       count(*) FILTER (WHERE ok)::int AS oks,
       count(*) FILTER (WHERE NOT ok AND verdict <> 'fail')::int AS unknowns,
       count(*) FILTER (WHERE verdict = 'fail'${byLedger ? ' AND code IS NOT NULL' : ''})::int AS refusals,
       coalesce(bool_or(${contradicts}), false) AS is_refused,
       min(told_order) FILTER (WHERE ok) AS told_order, min(told_version) FILTER (WHERE ok) AS told_version,
       min(told_status) FILTER (WHERE ok) AS told_status, min(told_ms) FILTER (WHERE ok) AS told_ms,
       (min(told_order) FILTER (WHERE ok) <> max(told_order) FILTER (WHERE ok)
         OR min(told_version) FILTER (WHERE ok) <> max(told_version) FILTER (WHERE ok)
         OR min(told_status) FILTER (WHERE ok) <> max(told_status) FILTER (WHERE ok)) AS two_answers,
       (min(account_id) <> max(account_id) OR min(amount_cents) <> max(amount_cents)
         OR min(order_id) <> max(order_id) OR min(status) <> max(status)) AS two_bodies
     FROM (SELECT *, coalesce(verdict, 'ok') = 'ok' AS ok FROM recon_intents) AS requests
     GROUP BY tenant, operation, key`,
  );
  await requireIntents(judge);
  const range = '(account_id::bigint - 1) >> 32';
  const mine = byLedger ? `${range} IN (SELECT DISTINCT ${range} FROM recon_keys WHERE operation = 'create')` : 'TRUE';
  await judge.query(`CREATE TEMP TABLE recon_own AS SELECT * FROM recon_orders WHERE ${mine}`);
  await judge.query(`CREATE TEMP TABLE recon_others AS SELECT order_id FROM recon_orders WHERE NOT (${mine})`);
  await judge.query('ANALYZE recon_others');
  const { rowCount } = await judge.query(`SELECT FROM recon_others LIMIT 1`);
  for (const name of rowCount ? ['outbox', 'parked', 'held', 'charges', 'effects', 'states', 'messages'] : []) {
    const id = name === 'messages' ? 'key' : 'order_id';
    await judge.query(`DELETE FROM recon_${name} r USING recon_others o WHERE o.order_id = r.${id}`);
  }
  await judge.query(
    `CREATE TEMP TABLE recon_first AS
     SELECT msg_id, count(*)::int AS times, min(record) AS record, max(record) AS other_record, min(digest) AS digest,
       min(key) AS key, min(type) AS type, min(topic) AS topic, min(partition) AS partition, min(position) AS position,
       min(at_ms) AS at_ms
     FROM recon_messages WHERE msg_id IS NOT NULL GROUP BY msg_id`,
  );
  await judge.query('ANALYZE recon_keys, recon_own, recon_first');
}

async function requireIntents(judge: pg.Client): Promise<void> {
  type Found = { intents: boolean; answers: boolean; bodies: string | null; accounts: string | null };
  const { rows } = await judge.query<Found>(
    `SELECT EXISTS (SELECT FROM recon_keys) AS intents,
       EXISTS (SELECT FROM recon_keys WHERE unknowns < requests) AS answers, (SELECT min(key) FROM recon_keys WHERE two_bodies) AS bodies,
       (SELECT min(account_id) FROM (SELECT account_id FROM recon_keys WHERE operation = 'create'
          GROUP BY account_id HAVING count(*) > 1) AS shared) AS accounts`,
  );
  const { intents, answers, bodies, accounts } = rows[0]!;
  if (!intents) throw new Undecided('there are no intents: nothing can be said of a run in which nothing was asked');
  if (!answers) throw new Undecided('no request has a definite answer: whatever was done may be right');
  if (bodies !== null) throw new Undecided(`key ${bodies} was sent with two bodies: it is not one intent`);
  if (accounts !== null) throw new Undecided(`account ${accounts} belongs to two keys: orders cannot be told apart`);
}
