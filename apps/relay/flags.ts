import { securityProblems } from 'twiceproof/transports/kafka';
import type { Flags, FlagSpecs } from '@twiceproof/program';

const maxMs = 3_600_000;

export const flags = {
  'database-url': { type: 'string', env: 'DATABASE_URL', help: 'the Postgres that holds the outbox' },
  brokers: {
    type: 'string',
    env: 'KAFKA_BROKERS',
    help: 'host:port of one or more brokers, with commas between; see operations.md for TLS and passwords',
  },
  topics: {
    type: 'string',
    default: 'order.events',
    help: 'that it publishes to, with commas between: they are checked',
  },
  relay: { type: 'choice', choices: ['poll'], default: 'poll', help: 'how it learns of new rows' },
  name: { type: 'string', default: '/orders', help: 'names this outbox in what is published (ce_source)' },
  batch: { type: 'integer', default: 500, min: 1, max: 10_000, help: 'rows that are published together, at most' },
  'max-record-bytes': {
    type: 'integer',
    default: 1_048_588,
    min: 1_000,
    max: 1_000_000_000,
    help: 'a larger record parks its key; as max.message.bytes of the topics',
  },
  lanes: { type: 'integer', default: 1, min: 1, max: 64, help: 'batches under way at once, each of another shard' },
  'poll-interval-ms': {
    type: 'integer',
    default: 10,
    min: 1,
    max: 60_000,
    help: 'how often a shard is looked at and, unless whole batches come, read',
  },
  'publish-deadline-ms': { type: 'integer', default: 15_000, min: 100, max: maxMs, help: 'for one batch' },
  'idle-timeout-ms': {
    type: 'integer',
    default: 30_000,
    min: 200,
    max: maxMs,
    help: 'after which a relay that stands still loses its shard',
  },
  'watchdog-ms': {
    type: 'integer',
    default: 45_000,
    min: 300,
    max: maxMs,
    help: 'after which one relay ends the connection of another that is stuck',
  },
  'stalled-ms': {
    type: 'integer',
    default: 60_000,
    min: 100,
    max: maxMs,
    help: 'without progress although rows wait, after which it is not ready',
  },
  'topics-every-ms': { type: 'integer', default: 60_000, min: 100, max: maxMs, help: 'how often topics are checked' },
  'admin-port': {
    type: 'integer',
    default: 9465,
    min: 0,
    max: 65_535,
    help: '/metrics, /livez, /readyz; 0 for a free one',
  },
  'grace-ms': {
    type: 'integer',
    default: 20_000,
    min: 0,
    max: maxMs,
    help: 'for the batch under way when told to stop',
  },
} as const satisfies FlagSpecs;

export type RelayFlags = Flags<typeof flags>;

/** A relay that is only slow must not be taken for one that stands still, or its work is done twice, again and again. */
export function flagProblems(given: Partial<RelayFlags>): string[] {
  const inOrder = ['publish-deadline-ms', 'idle-timeout-ms', 'watchdog-ms'] as const;
  const problems = inOrder.slice(1).flatMap((longer, n) => {
    const shorter = inOrder[n]!;
    const [low, high] = [given[shorter], given[longer]];
    if (low === undefined || high === undefined || low < high) return [];
    return [`--${shorter} is less than --${longer}, not ${low} and ${high}`];
  });
  if (given.topics !== undefined && namesIn(given.topics).length === 0) problems.push('--topics names no topic');
  return [...problems, ...securityProblems()];
}

export function namesIn(list: string): string[] {
  return list
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
}
