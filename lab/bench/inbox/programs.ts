/** The programs that consume, each as a process, and how far one is. */
import { runProgram, startServing } from '../children.ts';
import type { Database, World } from '../relay/world.ts';

export interface ConsumerProgram {
  pid: number;
  /** Of payments: where its metrics are. */
  admin: string;
  /** How many messages it is done with, since it was started. */
  consumed(): Promise<number>;
  stop(): Promise<void>;
  hasEnded(): boolean;
  said(): string;
}

export interface Where {
  world: World;
  topic: string;
  group: string;
}

async function start(
  { world }: Where,
  script: string,
  args: readonly string[],
  { database, consumed }: { database?: Database; consumed?: () => Promise<number> },
): Promise<ConsumerProgram> {
  let said = 0;
  const env = { DATABASE_URL: database?.url, KAFKA_BROKERS: world.kafka.bootstrap };
  const { child, ready } = await startServing(script, args, {
    env,
    onLine: (line) => {
      if ('consumed' in line) said = Number(line['consumed']);
    },
  });
  let ended = false;
  child.ended
    .then(() => {
      ended = true;
    })
    .catch(() => {});
  return {
    pid: child.pid,
    admin: String(ready['admin']),
    stop: child.stop,
    said: child.said,
    hasEnded: () => ended,
    consumed: consumed ?? (async () => Promise.resolve(said)),
  };
}

export type Shape = 'each' | 'set';

/** What it has committed stands in the database, so it is not asked. There is no position yet. */
export async function startPayments(
  where: Where,
  database: Database,
  shape: Shape,
  more: readonly string[] = [],
): Promise<ConsumerProgram> {
  const args = [
    `--topics=${where.topic}`,
    `--group=${where.group}`,
    `--shape=${shape}`,
    '--no-unique-charge',
    '--admin-port=0',
    '--grace-ms=5000',
    ...more,
  ];
  const consumed = async (): Promise<number> => {
    const { rows } = await database.client.query<{ count: string }>(
      'SELECT coalesce(sum(next_offset), 0) AS count FROM twiceproof.inbox_position',
    );
    return Number(rows[0]?.count);
  };
  return start(where, 'apps/payments/main.ts', args, { database, consumed });
}

export async function startTextbook(where: Where, database: Database): Promise<ConsumerProgram> {
  const args = ['run', `--topic=${where.topic}`, `--group=${where.group}`];
  return start(where, 'lab/baselines/consumer.ts', args, { database });
}

export async function prepareTextbook(database: Database): Promise<void> {
  await runProgram('lab/baselines/consumer.ts', ['prepare'], { DATABASE_URL: database.url });
}

export async function startDiscard(where: Where): Promise<ConsumerProgram> {
  return start(where, 'lab/baselines/discard.ts', [`--topic=${where.topic}`, `--group=${where.group}`], {});
}
