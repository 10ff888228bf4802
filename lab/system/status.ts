/** How the whole system is, as one object: the terminal, --json, /status and a web page show the same. */
import type { Invariant } from './invariant.ts';
import type { Kept } from './keep.ts';
import type { Meters } from './meters.ts';
import { openWindow } from './window.ts';

export interface Status {
  at: string;
  upS: number;
  processes: { name: string; kind: string; pid: number; state: Kept['state']; restarts: number }[];
  /** A second, over the last ten seconds. */
  rates: { requests: number; orders: number; replays: number; published: number; charges: number; duplicates: number };
  /** Of the outbox; undefined while no relay says it. */
  lag: { messages: number | undefined; oldestS: number | undefined };
  /** Messages that wait for a person. */
  held: number | undefined;
  /** At each hop, over the last ten seconds; undefined where nothing passed. */
  p99Ms: { request: number | undefined; appendToBroker: number | undefined; commitToEffect: number | undefined };
  /** Undefined until the reconciler has spoken for the first time. */
  invariant: Invariant | undefined;
}

export interface StatusSource {
  /** Asks the programs, and answers what they say now. */
  refresh(): Promise<Status>;
  latest(): Status;
  tell(found: Invariant): void;
}

const counters = {
  requests: ['orders_requests_total'],
  orders: ['orders_idempotency_total', 'result="miss"'],
  replays: ['orders_idempotency_total', 'result="hit"'],
  published: ['relay_published_total'],
  charges: ['payments_charges_total'],
  duplicates: ['payments_messages_total', 'verdict="duplicate"'],
} as const satisfies Record<string, readonly [string, string?]>;

const hops = {
  request: 'orders_request_duration_seconds',
  appendToBroker: 'relay_append_to_broker_seconds',
  commitToEffect: 'payments_commit_to_effect_seconds',
} as const;

export function openStatus(meters: Meters, kept: () => readonly Kept[]): StatusSource {
  const window = openWindow(meters, Object.values(counters), Object.values(hops));
  const began = performance.now();
  let invariant: Invariant | undefined;
  const read = (): Status => ({
    at: new Date().toISOString(),
    upS: Math.round((performance.now() - began) / 1_000),
    processes: kept().map(({ name, kind, pid, state, restarts }) => ({ name, kind, pid, state, restarts })),
    rates: mapped(counters, ([name, label]) => round(window.rate(name, label))!),
    lag: {
      messages: meters.highest('relay_pending_messages'),
      oldestS: round(meters.highest('relay_pending_oldest_seconds')),
    },
    held: meters.highest('payments_held_messages'),
    p99Ms: mapped(hops, (name) => round(window.p99Ms(name))),
    invariant,
  });
  let latest = read();
  return {
    refresh: async () => {
      await meters.sample();
      window.note();
      latest = read();
      return latest;
    },
    latest: () => latest,
    tell: (found) => {
      invariant = found;
    },
  };
}

function mapped<K extends string, V, R>(values: Record<K, V>, into: (value: V) => R): Record<K, R> {
  return Object.fromEntries(Object.entries<V>(values).map(([key, value]) => [key, into(value)])) as Record<K, R>;
}

function round(value: number | undefined): number | undefined {
  return value === undefined ? undefined : Math.round(10 * value) / 10;
}
