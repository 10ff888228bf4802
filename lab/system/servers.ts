/** Postgres and the brokers, which are started again like everything else. */
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { startKafka, type KafkaCluster } from '@twiceproof/infra/kafka';
import { kafkaAdmin } from '@twiceproof/infra/kafka-admin';
import { startPostgres, type PostgresServer } from '@twiceproof/infra/postgres';
import type { Run } from '@twiceproof/infra/run';
import { keep, type Kept } from './keep.ts';
import { topic } from './programs.ts';
import type { Wires } from './wires.ts';

export interface ServersOptions {
  run: Run;
  brokers: 1 | 3;
  postgresPort: number;
  /** Those of the brokers. */
  wires: Wires | undefined;
  /** Where they keep their data beyond the run. Defaults to nowhere. */
  keptDirectory?: string | undefined;
  signal: AbortSignal;
  progress(text: string): void;
}

export interface Servers {
  postgres: PostgresServer;
  kafka: KafkaCluster;
  kept: readonly Kept[];
  close(): Promise<void>;
}

/** Both at once; when one cannot be had, the other is stopped again. */
export async function startServers(options: ServersOptions): Promise<Servers> {
  const { run, brokers, postgresPort, wires, keptDirectory, signal, progress } = options;
  const keptAt = (name: string): { directory?: string } =>
    keptDirectory === undefined ? {} : { directory: join(keptDirectory, name) };
  const sideDoors = wires && { sideDoors: wires.sideDoors };
  const results = await Promise.allSettled([
    startPostgres({ run, signal, port: postgresPort, ...keptAt('postgres') }),
    startKafka({ run, signal, brokers, progress, ...keptAt(`kafka-${brokers}`), ...sideDoors }),
  ]);
  const failed = results.find((result) => result.status === 'rejected');
  if (failed) {
    for (const result of results) if (result.status === 'fulfilled') await result.value.close();
    throw failed.reason;
  }
  const [postgres, kafka] = results.map((result) => (result as PromiseFulfilledResult<unknown>).value) as [
    PostgresServer,
    KafkaCluster,
  ];
  await makeTopic(kafka.bootstrap);
  const kept = [
    restarted('postgres', 'postgres', postgres),
    ...kafka.brokers.map((broker) => restarted(`broker-${broker.id}`, 'broker', broker)),
  ];
  return {
    postgres,
    kafka,
    kept,
    close: async () => {
      await Promise.all(kept.map(async (each) => each.leaveAlone()));
      const isKept = keptDirectory !== undefined;
      await Promise.all([isKept ? postgres.stop() : postgres.close(), kafka.close({ cleanly: isKept })]);
    },
  };
}

/** In data that was kept it is there already. */
async function makeTopic(bootstrap: string): Promise<void> {
  const admin = kafkaAdmin(bootstrap);
  try {
    await admin.createTopic(topic, { partitions: 3 }).catch(async (error: unknown) => {
      if (!(await admin.countReplicas(topic).catch(() => 0))) throw error;
    });
  } finally {
    await admin.close();
  }
}

interface Restartable {
  readonly pid: number;
  readonly running: boolean;
  start(): Promise<void>;
}

/** It runs already. */
function restarted(name: string, kind: string, server: Restartable): Kept {
  return keep({
    name,
    kind,
    start: async () => {
      if (!server.running) await server.start();
      return { pid: server.pid, ended: untilEnded(server) };
    },
  });
}

const lookEveryMs = 100;

async function untilEnded(server: Restartable): Promise<void> {
  while (server.running) await delay(lookEveryMs, undefined, { ref: false });
}
