/** A real Kafka cluster of our own: KRaft, one or three brokers with combined roles, on loopback. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { requireFreeSpace } from './directories.ts';
import {
  brokerCommand,
  logSize,
  randomKafkaId,
  waitUntilServing,
  writeBrokerFiles,
  type BrokerNode,
  type SideDoor,
} from './kafka-broker.ts';
import { findKafka, type KafkaDistribution } from './kafka-distribution.ts';
import { freePorts, requireFreePort } from './ports.ts';
import { beginRun, type Run } from './run.ts';
import { startServer, type ServerProcess } from './server-process.ts';

export interface KafkaOptions {
  brokers: 1 | 3;
  /** The run that it belongs to. Without one it gets its own, which ends with `close`. */
  run?: Run;
  /** Of the first broker; the others follow. Defaults to free ports. */
  port?: number;
  /** One for each broker, such as for clients that come through a proxy. Defaults to none. */
  sideDoors?: readonly SideDoor[];
  /** Beside those of every broker of ours, or instead of them. Defaults to none. */
  settings?: Readonly<Record<string, string>>;
  /** Where to keep the brokers' data beyond the run. Defaults to new data inside the run. */
  directory?: string;
  progress?: (text: string) => void;
  /** Ends a start that is under way. */
  signal?: AbortSignal;
}

export interface KafkaCluster {
  /** For clients: `127.0.0.1:p1,127.0.0.1:p2,...` */
  readonly bootstrap: string;
  readonly version: string;
  readonly directory: string;
  readonly brokers: readonly Broker[];
  /** For good. `cleanly` only matters for data that is kept. */
  close(options?: { cleanly?: boolean }): Promise<void>;
}

export interface Broker {
  readonly id: number;
  readonly address: string;
  readonly pid: number;
  readonly running: boolean;
  readonly logFile: string;
  /** Again, on the same data and port; resolves when it serves. */
  start(): Promise<void>;
  /** Cleanly: its partitions are led elsewhere before it ends. */
  stop(): Promise<void>;
  /** SIGKILL. */
  kill(): Promise<void>;
  /** SIGSTOP: it holds its connections and answers nothing. */
  freeze(): void;
  /** SIGCONT. */
  thaw(): void;
}

const neededBytesForEach = 200e6;

export async function startKafka(options: KafkaOptions): Promise<KafkaCluster> {
  const run = options.run ?? (await beginRun('kafka'));
  try {
    const kafka = await findKafka({ run, progress: options.progress ?? (() => {}), signal: options.signal });
    const directory = options.directory ?? join(run.directory, 'kafka');
    requireFreeSpace(directory, options.brokers * neededBytesForEach, 'Kafka');
    const brokers = (await layOut(options, directory)).map((node, _, all) =>
      broker(kafka, node, all, run, options.signal),
    );
    const cluster: KafkaCluster = {
      bootstrap: brokers.map(({ address }) => address).join(','),
      version: kafka.version,
      directory,
      brokers,
      close: async ({ cleanly = false } = {}) => {
        await Promise.all(brokers.map((each) => (cleanly ? each.stop() : each.kill())));
        if (!options.run) await run.end();
      },
    };
    const started = await Promise.allSettled(brokers.map((each) => each.start()));
    const failed = started.find((result) => result.status === 'rejected');
    if (!failed) return cluster;
    await cluster.close();
    throw failed.reason;
  } catch (error) {
    if (!options.run) await run.end();
    throw error;
  }
}

async function layOut(options: KafkaOptions, directory: string): Promise<BrokerNode[]> {
  const ports = await freePorts(2 * options.brokers);
  const clusterId = knownClusterId(directory) ?? randomKafkaId();
  const nodes = Array.from({ length: options.brokers }, (_, index) => ({
    id: index + 1,
    port: options.port === undefined ? ports[index]! : options.port + index,
    controllerPort: ports[options.brokers + index]!,
    sideDoor: options.sideDoors?.[index],
    settings: options.settings,
    directory: join(directory, `broker-${index + 1}`),
    clusterId,
  }));
  if (options.port !== undefined) {
    for (const node of nodes) await requireFreePort(node.port, `Kafka broker ${node.id}`, '--kafka-port');
  }
  return nodes;
}

function knownClusterId(directory: string): string | undefined {
  const file = join(directory, 'broker-1/log/meta.properties');
  return existsSync(file) ? /^cluster\.id=(.*)$/m.exec(readFileSync(file, 'utf8'))?.[1] : undefined;
}

function broker(
  kafka: KafkaDistribution,
  node: BrokerNode,
  all: readonly BrokerNode[],
  run: Run,
  signal: AbortSignal | undefined,
): Broker {
  const command = brokerCommand(kafka, [`-XX:SharedArchiveFile=${kafka.classArchive}`], run, node.directory);
  let server: ServerProcess | undefined;
  return {
    id: node.id,
    address: `127.0.0.1:${node.port}`,
    logFile: command.logFile,
    get pid() {
      return server?.pid ?? 0;
    },
    get running() {
      return server?.running ?? false;
    },
    start: async () => {
      writeBrokerFiles(node, all, kafka.bootstrapCheckpoint);
      const logOffset = logSize(command.logFile);
      server = await startServer(command);
      await waitUntilServing(server, node.id, command.logFile, logOffset, signal);
    },
    stop: async () => server?.end('SIGTERM', 15_000),
    kill: async () => server?.end('SIGKILL', 0),
    freeze: () => server?.signal('SIGSTOP'),
    thaw: () => server?.signal('SIGCONT'),
  };
}
