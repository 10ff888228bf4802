/** One Kafka broker: its files, its command line, and how we know that it serves. */
import { randomBytes } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Java } from './java.ts';
import type { Run } from './run.ts';
import { waitUntilReady, type ServerCommand, type ServerProcess } from './server-process.ts';

/** A second listener, whose clients are told that it is elsewhere: where something stands between them and the broker. */
export interface SideDoor {
  port: number;
  advertisedPort: number;
}

export interface BrokerNode {
  id: number;
  port: number;
  controllerPort: number;
  sideDoor?: SideDoor | undefined;
  settings?: Readonly<Record<string, string>> | undefined;
  directory: string;
  clusterId: string;
}

/** What every broker of ours is set to, whatever runs it: compose.yaml says the same, and a test compares. */
export function safetySettings(brokers: number): Record<string, string> {
  const replicas = String(brokers);
  const inSync = String(Math.min(2, brokers));
  return {
    'default.replication.factor': replicas,
    'min.insync.replicas': inSync,
    'unclean.leader.election.enable': 'false',
    'auto.create.topics.enable': 'false',
    'offsets.topic.replication.factor': replicas,
    'transaction.state.log.replication.factor': replicas,
    'transaction.state.log.min.isr': inSync,
  };
}

/** Small on purpose: each partition costs three brokers a fetcher's work, and a start its share of time. */
const frugalSettings = {
  'offsets.topic.num.partitions': '6',
  'transaction.state.log.num.partitions': '3',
  'share.coordinator.state.topic.replication.factor': '1',
  'share.coordinator.state.topic.min.isr': '1',
  'group.initial.rebalance.delay.ms': '0',
  // A broker that was killed is replaced as leader after this time (Kafka's default is 9 s).
  'broker.session.timeout.ms': '6000',
  'broker.heartbeat.interval.ms': '1000',
};

/** 16 random bytes, as Kafka writes its ids; its tools refuse one that begins with a dash. */
export function randomKafkaId(): string {
  const id = randomBytes(16).toString('base64url');
  return id.startsWith('-') ? randomKafkaId() : id;
}

/** Writes server.properties, whose path it answers, and formats the storage unless that was done before. */
export function writeBrokerFiles(
  node: BrokerNode,
  all: readonly BrokerNode[],
  bootstrapCheckpoint: string | undefined,
): string {
  const log = join(node.directory, 'log');
  mkdirSync(join(node.directory, 'tmp'), { recursive: true });
  mkdirSync(log, { recursive: true });
  if (!existsSync(join(log, 'meta.properties'))) {
    const meta = {
      version: '1',
      'cluster.id': node.clusterId,
      'node.id': String(node.id),
      'directory.id': randomKafkaId(),
    };
    writeFileSync(join(log, 'meta.properties'), toProperties(meta));
    if (bootstrapCheckpoint) copyFileSync(bootstrapCheckpoint, join(log, 'bootstrap.checkpoint'));
  }
  copyFileSync(join(import.meta.dirname, 'kafka/log4j2.xml'), join(node.directory, 'log4j2.xml'));
  const file = join(node.directory, 'server.properties');
  const { sideDoor } = node;
  const settings = {
    'process.roles': 'broker,controller',
    'node.id': String(node.id),
    'controller.quorum.voters': all.map((peer) => `${peer.id}@127.0.0.1:${peer.controllerPort}`).join(','),
    listeners: `PLAINTEXT://127.0.0.1:${node.port},CONTROLLER://127.0.0.1:${node.controllerPort}${sideDoor ? `,SIDE://127.0.0.1:${sideDoor.port}` : ''}`,
    'advertised.listeners': `PLAINTEXT://127.0.0.1:${node.port}${sideDoor ? `,SIDE://127.0.0.1:${sideDoor.advertisedPort}` : ''}`,
    'controller.listener.names': 'CONTROLLER',
    'listener.security.protocol.map': 'PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SIDE:PLAINTEXT',
    // Below the broker's working directory: Java reads this file as Latin-1, and a path may hold any character.
    'log.dirs': 'log',
    ...safetySettings(all.length),
    ...frugalSettings,
    ...node.settings,
  };
  writeFileSync(file, toProperties(settings));
  return file;
}

function toProperties(settings: Record<string, string>): string {
  // A backslash begins an escape in this format.
  const lines = Object.entries(settings).map(([key, value]) => `${key}=${value.replaceAll('\\', '\\\\')}`);
  return `${lines.join('\n')}\n`;
}

export function brokerCommand(
  kafka: { java: Java; classPath: string },
  jvmFlags: readonly string[],
  run: Run,
  directory: string,
): ServerCommand {
  return {
    name: 'Kafka',
    command: kafka.java.command,
    args: [
      `-D${run.mark}`,
      '-Xmx384m',
      '-XX:+UseSerialGC',
      // The quick compiler only: brokers of a lab live for minutes, and would spend half of that in the other one.
      '-XX:TieredStopAtLevel=1',
      // Otherwise a killed JVM leaves a file in /tmp.
      '-XX:-UsePerfData',
      '-Djava.io.tmpdir=tmp',
      '-Dlog4j2.configurationFile=log4j2.xml',
      ...jvmFlags,
      '-cp',
      kafka.classPath,
      'kafka.Kafka',
      'server.properties',
    ],
    cwd: directory,
    // So that Java takes the bytes of a path for UTF-8, whatever the terminal is set to.
    env: { ...process.env, LC_ALL: 'C.UTF-8' },
    logFile: join(directory, 'broker.log'),
  };
}

/** A broker says that it has started when it is registered, has caught up, and takes requests. */
export async function waitUntilServing(
  broker: ServerProcess,
  id: number,
  logFile: string,
  logOffset: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  const todo = 'Correct what the log says. If it is an address in use, try again: the next start takes other ports.';
  await waitUntilReady(broker, { name: `Kafka broker ${id}`, logFile, timeoutMs: 60_000, todo, signal }, async () =>
    readFileSync(logFile).subarray(logOffset).includes('Kafka Server started'),
  );
}

export function logSize(logFile: string): number {
  return existsSync(logFile) ? statSync(logFile).size : 0;
}
