import { securityProblems } from 'twiceproof/transports/kafka';
import type { Flags, FlagSpecs } from '@twiceproof/program';

const maxMs = 3_600_000;

export const flags = {
  'database-url': { type: 'string', env: 'DATABASE_URL', help: 'the Postgres that holds charges and inbox' },
  'keeper-database-url': {
    type: 'string',
    env: 'KEEPER_DATABASE_URL',
    help: 'the same past a pooler in transaction mode, for the keeper of the inbox (default: as the other)',
  },
  brokers: {
    type: 'string',
    env: 'KAFKA_BROKERS',
    help: 'host:port of one or more brokers, with commas between; see operations.md for TLS and passwords',
  },
  topics: { type: 'string', default: 'order.events', help: 'that it consumes, with commas between' },
  group: { type: 'string', default: 'payments', help: 'of the brokers; it may change, and nothing is done twice' },
  batch: { type: 'integer', default: 500, min: 1, max: 10_000, help: 'messages in one transaction, at most' },
  workers: {
    type: 'integer',
    min: 1,
    max: 64,
    help: 'transactions under way at once (default: 1 with --shape=set, 2 with --shape=each)',
  },
  shape: {
    type: 'choice',
    choices: ['set', 'each'],
    default: 'set',
    help: 'statements for all of a batch, or for each',
  },
  'dedup-ttl': {
    type: 'string',
    help: 'how long ids are remembered, such as 9d, 36h or 90s; by default the horizon and one partition more',
  },
  'replay-window': { type: 'string', help: 'how far back operators may replay, if that is more than the brokers keep' },
  'outbox-wait': { type: 'string', default: '24h', help: 'the longest that a message may wait in the outbox' },
  'partition-width': { type: 'string', default: '1d', help: 'of the inbox: it forgets by whole partitions' },
  'unsafe-ttl': {
    type: 'boolean',
    help: 'EXPERIMENT: takes any --dedup-ttl, and runs messages that are older, though they may have run before',
  },
  'hold-late': { type: 'boolean', help: 'EXPERIMENT: with --unsafe-ttl: older messages are held all the same' },
  'no-unique-charge': {
    type: 'boolean',
    help: 'EXPERIMENT: without the constraint that an order has one charge: the inbox stands alone',
  },
  'crash-point': {
    type: 'choice',
    choices: ['none', 'effect'],
    default: 'none',
    help: 'EXPERIMENT: dies (SIGKILL) when the first effects are written and not committed',
  },
  'effect-order': {
    type: 'choice',
    choices: ['inbox-first', 'charge-first'],
    default: 'inbox-first',
    help: 'EXPERIMENT: which is written first in the transaction; the inbox is what the library does',
  },
  'dup-rate': {
    type: 'number',
    default: 0,
    min: 0,
    max: 1,
    help: 'EXPERIMENT: the share of messages that are delivered again; with two --workers also at the same time',
  },
  seed: { type: 'integer', default: 1, min: 0, max: 4_294_967_295, help: 'of --dup-rate' },
  'stalled-ms': {
    type: 'integer',
    default: 60_000,
    min: 100,
    max: maxMs,
    help: 'for which a batch may be under way, before it is not ready',
  },
  'admin-port': {
    type: 'integer',
    default: 9466,
    min: 0,
    max: 65_535,
    help: '/metrics, /livez, /readyz; 0 for a free one',
  },
  'grace-ms': {
    type: 'integer',
    default: 20_000,
    min: 0,
    max: maxMs,
    help: 'for the batches under way when told to stop',
  },
} as const satisfies FlagSpecs;

export type PaymentsFlags = Flags<typeof flags>;

const durations = ['dedup-ttl', 'replay-window', 'outbox-wait', 'partition-width'] as const;

export function flagProblems(given: Partial<PaymentsFlags>): string[] {
  const { topics, 'unsafe-ttl': unsafe, 'hold-late': holds, 'dedup-ttl': ttl } = given;
  const chargesFirst = given['effect-order'] === 'charge-first';
  return [
    ...durations.flatMap((name) => {
      const text = given[name];
      if (text === undefined || msOf(text) !== undefined) return [];
      return [`--${name} is a time such as 9d, 36h, 5m, 90s or 500ms, not '${text}'`];
    }),
    ...(topics !== undefined && namesIn(topics).length === 0 ? ['--topics names no topic'] : []),
    ...securityProblems(),
    ...(holds && !unsafe ? ['--hold-late is for --unsafe-ttl; without that late messages are held anyway'] : []),
    ...(chargesFirst && !given['no-unique-charge']
      ? ['--effect-order=charge-first needs --no-unique-charge: the constraint would speak before the inbox is asked']
      : []),
    ...(chargesFirst && (given.workers !== undefined || given.shape === 'each')
      ? ['--effect-order=charge-first has one lane at a time, and sets: --workers and --shape=each are not for it']
      : []),
    ...(chargesFirst && unsafe && !holds
      ? ['--effect-order=charge-first cannot run late messages: it is not for --unsafe-ttl']
      : []),
    ...(unsafe && ttl === undefined ? ['--unsafe-ttl needs a --dedup-ttl: the one that is computed is safe'] : []),
  ];
}

/** What makes it do harm, or do things twice on purpose. Refused in production. */
export function experimentsIn(given: PaymentsFlags): string[] {
  return [
    ...(given['unsafe-ttl'] && !given['hold-late']
      ? ['--unsafe-ttl: messages older than the inbox remembers are run, and may charge an order twice']
      : []),
    ...(given['unsafe-ttl'] && given['hold-late']
      ? [
          '--unsafe-ttl --hold-late: the inbox may forget messages that can come again, and holds them for a person then',
        ]
      : []),
    ...(given['no-unique-charge'] ? ['--no-unique-charge: the database takes a second charge of an order'] : []),
    ...(given['crash-point'] === 'effect' ? ['--crash-point=effect: it dies at its first effects, before COMMIT'] : []),
    ...(given['effect-order'] === 'charge-first'
      ? ['--effect-order=charge-first: the charge is written before the inbox is asked; it holds nothing aside']
      : []),
    ...(given['dup-rate'] > 0
      ? [`--dup-rate=${given['dup-rate']} --seed=${given.seed}: messages are delivered again on purpose`]
      : []),
  ];
}

const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** Undefined where it is no time, or none at all. */
export function msOf(text: string): number | undefined {
  const [, count, unit] = /^(\d{1,9})(ms|s|m|h|d)$/.exec(text) ?? [];
  if (count === undefined) return undefined;
  return Number(count) * units[unit as keyof typeof units] || undefined;
}

export function namesIn(list: string): string[] {
  return list
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
}
