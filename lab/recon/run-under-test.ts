/**
 * A run of the whole system as it should be, made up in memory: what was asked for, and the rows and records that follow
 * from it. A test changes something of it and has it written to real places (world-under-test.ts).
 */
import { randomBytes } from 'node:crypto';

export const tenant = 'tenant-1';
export const partitions = 3;
const startMs = Date.now() - 60_000;

export interface Call {
  door: 'http' | 'grpc';
  operation: 'create' | 'set-status';
  key: string;
  order_id: string | null;
  account_id: number | null;
  amount_cents: number | null;
  status: string | null;
  /** Undefined: the ledger ends before the answer. */
  answer?: {
    verdict: 'ok' | 'fail' | 'unknown';
    /** Null: there was no connection, so it was not sent. */
    code: number | null;
    hash: string | null;
    order_id: string | null;
    version: number | null;
    status?: string | null;
    /** How long ago. Defaults to half a minute. */
    agoMs?: number;
  };
}

export interface Run {
  calls: Call[];
  orders: {
    order_id: string;
    tenant: string;
    account_id: number;
    amount_cents: number;
    status: string;
    version: number;
  }[];
  outbox: { msg_id: string; order_id: string; type: string; payload: string; created_at: Date }[];
  records: { partition: number; key: string; value: string; headers: Record<string, string>; atMs: number }[];
  inbox: { msg_id: string; consumer: string }[];
  charges: { charge_id: string; order_id: string; amount_cents: number }[];
  effects: { consumer: string; msg_id: string; order_id: string; version: number }[];
  /** Those that differ from what follows from the effects; undefined: there is none. */
  states: Map<string, { status: string; version: number } | undefined>;
  held: { kind: string; msg_id: string; order_id: string }[];
  parked: { msg_id: string; order_id: string }[];
  claims: { operation: string; key: string }[];
}

const lastStatus = ['created', 'paid', 'shipped'] as const;

/**
 * Orders with 0, 1 or 2 changes of status. Every third is asked for twice at one door, every fourth at both; the last
 * one was never answered and done all the same, and one intent was never answered and never done.
 */
export function soundRun({ orders = 12, nonce = 7 } = {}): Run {
  const run = emptyRun();
  for (let n = 0; n < orders; n += 1) addOrder(run, nonce * 2 ** 32 + n + 1, n, n === orders - 1);
  run.calls.push({ ...create(nonce * 2 ** 32 + orders + 1, `k${nonce}-never`), door: 'http' });
  return run;
}

export function emptyRun(): Run {
  const [made, done] = [
    { calls: [], orders: [], outbox: [], parked: [], claims: [] },
    { inbox: [], held: [], charges: [], effects: [], states: new Map() },
  ];
  return { ...made, records: [], ...done };
}

export function addOrder(run: Run, accountId: number, n: number, unanswered: boolean): void {
  const orderId = uuidv7();
  const version = 1 + (n % 3);
  for (let v = 1; v <= version; v += 1) {
    const key = `k${accountId}-${v}`;
    const status = lastStatus[v - 1]!;
    const call: Call =
      v === 1
        ? create(accountId, key)
        : {
            door: 'http',
            operation: 'set-status',
            key,
            order_id: orderId,
            account_id: null,
            amount_cents: null,
            status,
          };
    for (const [attempt, door] of doorsOf(n).entries()) {
      const ok = {
        verdict: 'ok',
        code: door === 'http' ? 200 : 0,
        hash: `${door}${accountId}${v}`,
        order_id: orderId,
        version: v,
        status,
      };
      run.calls.push({
        ...call,
        door,
        ...(unanswered && attempt === 0 ? {} : { answer: ok as NonNullable<Call['answer']> }),
      });
    }
    run.claims.push({ operation: `orders.${call.operation}`, key });
    const amount = v === 1 ? { account_id: accountId, amount_cents: amountOf(accountId) } : {};
    addEvent(run, { order_id: orderId, ...amount, status, version: v }, n);
  }
  const [amount_cents, status] = [amountOf(accountId), lastStatus[version - 1]!];
  run.orders.push({ order_id: orderId, tenant, account_id: accountId, amount_cents, status, version });
  run.charges.push({ charge_id: uuidv7(), order_id: orderId, amount_cents });
}

interface EventPayload {
  order_id: string;
  version: number;
  status: string;
}

/** An event and all that follows from it but the charge. */
export function addEvent(run: Run, payload: EventPayload, n: number): void {
  const { order_id, version } = payload;
  const msg_id = uuidv7();
  const type = version === 1 ? 'order.created' : 'order.status_changed';
  const value = JSON.stringify(payload);
  run.outbox.push({ msg_id, order_id, type, payload: value, created_at: new Date(startMs) });
  run.records.push({
    partition: n % partitions,
    key: order_id,
    value,
    headers: { ce_id: msg_id, ce_type: type },
    atMs: startMs,
  });
  run.inbox.push({ msg_id, consumer: 'payments' });
  run.effects.push({ consumer: 'payments', msg_id, order_id, version });
}

function doorsOf(n: number): ('http' | 'grpc')[] {
  return ['http', ...(n % 3 === 0 ? (['http'] as const) : []), ...(n % 4 === 0 ? (['grpc'] as const) : [])];
}

function create(accountId: number, key: string): Call {
  const amount_cents = amountOf(accountId);
  return { door: 'http', operation: 'create', key, order_id: null, account_id: accountId, amount_cents, status: null };
}

export function amountOf(accountId: number): number {
  return 100 + (accountId % 900);
}

let lastMs = 0;

/** Rising, one for each millisecond of a time that goes ahead of the clock if it must. */
export function uuidv7(): string {
  lastMs = Math.max(startMs, lastMs + 1);
  const time = lastMs.toString(16).padStart(12, '0');
  const rest = randomBytes(8).toString('hex');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${rest.slice(0, 3)}-8${rest.slice(3, 6)}-${randomBytes(6).toString('hex')}`;
}

export function ledgerOf(calls: readonly Call[]): string {
  return ledgerHead + calls.map((call, n) => callLine(n, call) + answerLine(n, call)).join('');
}

export const ledgerHead = `# ${JSON.stringify({ ledger: 3, startMs, startedAt: new Date(startMs), seed: 1, principal: tenant })}\n`;

export function callLine(
  n: number,
  { door, operation, key, order_id, account_id, amount_cents, status }: Call,
): string {
  return lineOf(['i', n, n, door, operation, key, 0, 0, order_id, account_id, amount_cents, status]);
}

export function answerLine(n: number, { answer }: Call): string {
  if (!answer) return '';
  const us = (Date.now() - (answer.agoMs ?? 30_000) - startMs) * 1_000;
  const { verdict, code, hash, order_id, version, status = null } = answer;
  return lineOf(['o', n, us, verdict, code, hash, order_id, version, status, null]);
}

function lineOf(fields: readonly (string | number | null)[]): string {
  return `${fields.map((field) => field ?? '\\N').join('\t')}\n`;
}
