/**
 * Kafka's jars from Maven, and what makes brokers start fast, all in the cache and made once:
 * - `bootstrap.checkpoint`: the part of a formatted storage directory that is the same for every
 *   broker. The rest is four lines of text (see kafka.ts), so no broker pays a JVM start to format.
 * - `classes.jsa`: an archive of the classes that a broker loads.
 * Three brokers on 2 cores: 24 s of CPU plain, 13 s with the archive, 7.5 s with the quick compiler too.
 */
import { execFile } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Refusal } from '@twiceproof/program';
import { cacheDirectory, cachedDirectory, requireFreeSpace, sha256Of } from './directories.ts';
import { findJava, runMaven, type Java } from './java.ts';
import { freePorts } from './ports.ts';
import { brokerCommand, randomKafkaId, writeBrokerFiles, waitUntilServing } from './kafka-broker.ts';
import type { Run } from './run.ts';
import { startServer } from './server-process.ts';

export interface KafkaDistribution {
  java: Java;
  version: string;
  /** Explicit and sorted: the class archive is only good for exactly this class path. */
  classPath: string;
  bootstrapCheckpoint: string;
  classArchive: string;
}

const execute = promisify(execFile);
const home = join(import.meta.dirname, 'kafka');
const neededBytes = 400e6;

export interface Preparing {
  /** To which the broker belongs that is started once to prepare the others. */
  run: Run;
  progress: (text: string) => void;
  signal?: AbortSignal | undefined;
  env?: NodeJS.ProcessEnv;
}

export async function findKafka(preparing: Preparing): Promise<KafkaDistribution> {
  const env = preparing.env ?? process.env;
  const cache = cacheDirectory(env);
  const java = await findJava(env);
  const manifest = readManifest();
  const version = /^kafka_2\.13-(.*)\.jar$/m.exec([...manifest.keys()].join('\n'))?.[1] ?? '';
  const jars = await cachedDirectory(
    `kafka-${version}-jars`,
    (target) => fetchJars(target, manifest, preparing),
    cache,
  );
  const classPath = readdirSync(jars)
    .sort()
    .map((jar) => join(jars, jar))
    .join(':');
  const base = { java, version, classPath };
  const prepared = await cachedDirectory(
    `kafka-${version}-java-${java.version}`,
    (target) => prepare(target, base, preparing),
    cache,
  );
  return {
    ...base,
    bootstrapCheckpoint: join(prepared, 'bootstrap.checkpoint'),
    classArchive: join(prepared, 'classes.jsa'),
  };
}

function readManifest(): Map<string, string> {
  const lines = readFileSync(join(home, 'jars.sha256'), 'utf8').trim().split('\n');
  return new Map(lines.map((line) => [line.slice(66), line.slice(0, 64)]));
}

async function fetchJars(
  target: string,
  manifest: ReadonlyMap<string, string>,
  { progress, signal, env }: Preparing,
): Promise<void> {
  requireFreeSpace(target, neededBytes, 'Kafka');
  progress('fetching Apache Kafka by Maven (44 MB, about half a minute, only this once) ...');
  const goal = 'org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies';
  await runMaven(['-f', join(home, 'pom.xml'), goal, '-DincludeScope=runtime', `-DoutputDirectory=${target}`], {
    signal,
    env,
  });
  const found = new Set(readdirSync(target));
  const wrong = [...manifest].filter(([jar, sha256]) => !found.has(jar) || sha256Of(join(target, jar)) !== sha256);
  if (wrong.length === 0 && found.size === manifest.size) return;
  throw new Refusal(
    `What Maven fetched is not what infra/kafka/jars.sha256 lists: ${wrong.map(([jar]) => jar).join(', ') || 'extra files'}.`,
    'Look at your Maven settings (a mirror that serves other files?); clear those jars from the local repository and try again.',
  );
}

/** One broker is formatted by Kafka's own tool, started and stopped; what it leaves serves all that follow. */
async function prepare(
  target: string,
  base: Pick<KafkaDistribution, 'java' | 'version' | 'classPath'>,
  { run, progress, signal }: Preparing,
): Promise<void> {
  progress('preparing Kafka for fast starts (about 15 s, only this once) ...');
  const directory = join(run.directory, 'kafka-prepare');
  mkdirSync(directory);
  const [port = 0, controllerPort = 0] = await freePorts(2);
  const node = { id: 1, port, controllerPort, directory, clusterId: randomKafkaId() };
  const properties = writeBrokerFiles(node, [node], undefined);
  rmSync(join(directory, 'log'), { recursive: true });
  const tool = ['-cp', base.classPath, 'kafka.tools.StorageTool', 'format'];
  const env = { ...process.env, LC_ALL: 'C.UTF-8' };
  await execute(base.java.command, [...tool, '--cluster-id', node.clusterId, '--config', properties], {
    signal,
    cwd: directory,
    env,
  });
  copyFileSync(join(directory, 'log/bootstrap.checkpoint'), join(target, 'bootstrap.checkpoint'));

  const archive = join(target, 'classes.jsa');
  const command = brokerCommand(base, [`-XX:ArchiveClassesAtExit=${archive}`], run, directory);
  const broker = await startServer(command);
  await waitUntilServing(broker, node.id, command.logFile, 0, signal);
  await broker.end('SIGTERM', 60_000);
  if (!existsSync(archive)) throw new Error(`java ${base.java.version} wrote no class archive`);
}
