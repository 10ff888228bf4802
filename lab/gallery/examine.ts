/** Beyond the verdict: whether the accused was at work when the run ended, and where it went wrong first. */
import { readFileSync } from 'node:fs';
import pg from 'pg';
import { inWords, type Fault } from '../chaos/system/fault.ts';
import { classOf } from '../chaos/system/schedule.ts';
import type { Evidence } from '../chaos/system/siege.ts';

export interface Examined {
  /** Of the last orders, how many had an effect. Almost all, unless it stood still: then its losses say nothing. */
  lastOrders: { written: number; done: number };
  first: FirstWrong | undefined;
}

/** Of all that the judge names, what was asked for earliest. */
export interface FirstWrong {
  /** Such as `doubled`. */
  delta: string;
  /** So many orders had been written by then. */
  orders: number;
  /** The next one on the accused, its wires or a server, and how much later it struck. */
  fault: string;
}

/** About a second of the load, behind the last fault. */
const lastOrders = 200;

/** `kinds`: whose place the recipe has taken. */
export async function examine(
  { databases, ledger, verdict, strikes }: Evidence,
  kinds: readonly string[],
): Promise<Examined> {
  const orders = new pg.Client(databases.orders);
  const payments = new pg.Client(databases.payments);
  await Promise.all([orders.connect(), payments.connect()]);
  try {
    const written = await idsOfLastOrders(orders);
    const done = await countEffects(payments, written);
    const askedAt = readLedger(ledger);
    const wronged: { delta: string; atMs: number }[] = [];
    for (const [delta, { ids }] of Object.entries(verdict.deltas)) {
      const times = [
        ...(await timesOfRows(orders, ids)),
        ...(await timesOfEffects(payments, ids)),
        ...ids.flatMap((id) => askedAt.get(id.slice(id.indexOf(':') + 1)) ?? []),
      ];
      wronged.push(...times.map((atMs) => ({ delta, atMs })));
    }
    const [first] = wronged.toSorted((a, b) => a.atMs - b.atMs);
    return {
      lastOrders: { written: written.length, done },
      first: first && {
        delta: first.delta,
        orders: await countOrders(orders, first.atMs),
        fault: faultAfter(first.atMs, strikes, kinds),
      },
    };
  } finally {
    await Promise.all([orders.end(), payments.end()]);
  }
}

export function faultAfter(atMs: number, strikes: Evidence['strikes'], kinds: readonly string[]): string {
  const [next] = strikes
    .filter((strike) => strike.atMs >= atMs && canBreak(strike.fault, kinds))
    .toSorted((a, b) => a.atMs - b.atMs);
  return next ? `${((next.atMs - atMs) / 1_000).toFixed(1)} s later: ${inWords(next.fault)}` : 'none came after it';
}

const servers = ['postgres', 'broker'];

function canBreak(fault: Fault, kinds: readonly string[]): boolean {
  const [struck = ''] = classOf(fault).split(':');
  // A guest takes lanes from payments.
  return [...kinds, ...servers, ...(kinds.includes('payments') ? ['guest'] : [])].includes(struck);
}

const isOrder = "event_type = 'order.created'";

async function idsOfLastOrders(orders: pg.Client): Promise<string[]> {
  const { rows } = await orders.query<{ msg_id: string }>(
    `SELECT msg_id FROM twiceproof.outbox WHERE ${isOrder} ORDER BY id DESC LIMIT ${lastOrders}`,
  );
  return rows.map(({ msg_id }) => msg_id);
}

async function countEffects(payments: pg.Client, messages: readonly string[]): Promise<number> {
  const { rows } = await payments.query<{ count: number }>(
    'SELECT count(DISTINCT msg_id)::int AS count FROM effects WHERE msg_id = ANY ($1)',
    [messages],
  );
  return rows[0]!.count;
}

async function countOrders(orders: pg.Client, untilMs: number): Promise<number> {
  const { rows } = await orders.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM twiceproof.outbox WHERE ${isOrder} AND created_at <= to_timestamp($1 / 1000.0)`,
    [untilMs],
  );
  return rows[0]!.count;
}

/** An order or a message, and of an order perhaps which version or state of it. */
const named = /([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:\/(\w+))?$/;

/** Of ids that name a message, or an event of an order: without its version it is the first. */
async function timesOfRows(orders: pg.Client, ids: readonly string[]): Promise<number[]> {
  const found = ids.flatMap((id) => {
    const [, uuid, part] = named.exec(id) ?? [];
    return uuid === undefined ? [] : [{ uuid, part: part ?? '1' }];
  });
  const { rows } = await orders.query<{ at_ms: number }>(
    `WITH named AS (SELECT * FROM unnest($1::text[], $2::text[]) AS one (id, part)),
       events AS (SELECT msg_id::text, aggregate_id, created_at, convert_from(payload, 'utf8')::json AS body
         FROM twiceproof.outbox)
     SELECT extract(epoch FROM created_at)::float8 * 1000 AS at_ms FROM (
       SELECT created_at FROM events JOIN named ON id = msg_id
       UNION ALL
       SELECT created_at FROM events JOIN named ON id = aggregate_id AND part IN (body ->> 'version', body ->> 'status')
     ) AS times`,
    [found.map(({ uuid }) => uuid), found.map(({ part }) => part)],
  );
  return rows.map(({ at_ms }) => at_ms);
}

/** Of `effect:7`, which follows from nothing: its message is in no outbox, but a message's id begins with the time. */
async function timesOfEffects(payments: pg.Client, ids: readonly string[]): Promise<number[]> {
  const { rows } = await payments.query<{ msg_id: string }>('SELECT msg_id FROM effects WHERE id = ANY ($1)', [
    ids.flatMap((id) => /^effect:(\d+)$/.exec(id)?.[1] ?? []),
  ]);
  return rows.map(({ msg_id }) => parseInt(msg_id.replaceAll('-', '').slice(0, 12), 16));
}

/** When each key was first asked for. */
function readLedger(path: string): Map<string, number> {
  const [head = '', ...lines] = readFileSync(path, 'utf8').split('\n');
  const { startMs } = JSON.parse(head.replace(/^# /, '')) as { startMs: number };
  const asked = new Map<string, number>();
  for (const line of lines) {
    const [kind, , us, , , key] = line.split('\t');
    if (kind === 'i' && key !== undefined && !asked.has(key)) asked.set(key, startMs + Number(us) / 1_000);
  }
  return asked;
}
