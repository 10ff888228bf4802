/** The Java and the Maven of this machine. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Refusal } from '@twiceproof/program';

const execute = promisify(execFile);
const oldest = 17;
const todo = `Install a Java ${oldest} or newer (Debian: apt-get install openjdk-17-jre-headless), or name brokers of your own in KAFKA_BROKERS.`;

export interface Java {
  command: string;
  /** For example `17.0.15`. */
  version: string;
}

export async function findJava(env: NodeJS.ProcessEnv = process.env): Promise<Java> {
  const command = env['JAVA_HOME'] ? join(env['JAVA_HOME'], 'bin/java') : 'java';
  const answer = await execute(command, ['-version'], { env }).catch((error: NodeJS.ErrnoException) => error);
  if (answer instanceof Error) throw new Refusal(`Kafka needs Java, and \`${command}\` does not run.`, todo);
  const version = /version "([^"]+)"/.exec(answer.stderr)?.[1] ?? 'unknown';
  // Before Java 9 versions began with 1.
  const major = Number(/^(?:1\.)?(\d+)/.exec(version)?.[1] ?? 0);
  if (major < oldest) throw new Refusal(`Kafka needs Java ${oldest}, and \`${command}\` is version ${version}.`, todo);
  return { command, version };
}

export async function runMaven(
  args: readonly string[],
  options: { env?: NodeJS.ProcessEnv | undefined; signal?: AbortSignal | undefined },
): Promise<void> {
  try {
    await execute('mvn', ['--batch-mode', '--quiet', ...args], {
      ...options,
      env: { ...(options.env ?? process.env), LC_ALL: 'C.UTF-8' },
      maxBuffer: 64e6,
    });
  } catch (cause) {
    const error = cause as NodeJS.ErrnoException & { stdout?: string };
    if (error.code === 'ENOENT') {
      throw new Refusal(
        'Kafka is not in the cache yet, and there is no Maven to fetch it.',
        'Install Maven (Debian: apt-get install maven), or name brokers of your own in KAFKA_BROKERS.',
      );
    }
    throw new Refusal(
      `Maven could not fetch Kafka:\n${(error.stdout ?? '').trim().split('\n').slice(-8).join('\n')}`,
      'Check the network and the Maven settings, then try again; what was fetched is kept.',
      undefined,
      { cause },
    );
  }
}
