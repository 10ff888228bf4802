import { readFileSync } from 'node:fs';
import { TwiceproofError } from '../errors.ts';
import type { KafkaTransportOptions } from './kafka-client.ts';

const mechanisms = ['PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512'] as const;

/**
 * How to get in where brokers ask who it is, from variables, so that a password stands in no list of processes:
 *
 * - `KAFKA_TLS=true`: by TLS; `KAFKA_CA_FILE`, `KAFKA_CERT_FILE` and `KAFKA_KEY_FILE` (PEM) also mean that
 * - `KAFKA_SASL_MECHANISM`, `KAFKA_USERNAME`, `KAFKA_PASSWORD`
 *
 * Without any of them it is nothing. What is incomplete is refused, and never left out.
 */
export function kafkaSecurity(env: NodeJS.ProcessEnv = process.env): Pick<KafkaTransportOptions, 'tls' | 'sasl'> {
  return { ...tlsOf(env), ...saslOf(env) };
}

/** What is wrong with them, for a program that says so before it begins. */
export function securityProblems(env: NodeJS.ProcessEnv = process.env): string[] {
  try {
    kafkaSecurity(env);
    return [];
  } catch (error) {
    return [(error as Error).message];
  }
}

function tlsOf(env: NodeJS.ProcessEnv): Pick<KafkaTransportOptions, 'tls'> {
  const { KAFKA_TLS: wanted = '', KAFKA_CA_FILE: ca, KAFKA_CERT_FILE: cert, KAFKA_KEY_FILE: key } = env;
  if (!['', 'true', 'false'].includes(wanted)) throw wrong(`KAFKA_TLS is true or false, not '${wanted}'`);
  if (!cert !== !key) throw wrong('KAFKA_CERT_FILE and KAFKA_KEY_FILE are needed together');
  const isNamed = Boolean(ca) || Boolean(cert);
  if (wanted === 'false' && isNamed) throw wrong('KAFKA_TLS is false, and files for TLS are named');
  if (wanted !== 'true' && !isNamed) return {};
  return {
    tls: {
      ...(ca && { ca: read('KAFKA_CA_FILE', ca) }),
      ...(cert && key && { cert: read('KAFKA_CERT_FILE', cert), key: read('KAFKA_KEY_FILE', key) }),
    },
  };
}

function saslOf(env: NodeJS.ProcessEnv): Pick<KafkaTransportOptions, 'sasl'> {
  const { KAFKA_SASL_MECHANISM: given, KAFKA_USERNAME: username, KAFKA_PASSWORD: password } = env;
  if (!given && !username && !password) return {};
  const mechanism = mechanisms.find((each) => each === given);
  if (!mechanism) throw wrong(`KAFKA_SASL_MECHANISM is one of ${mechanisms.join(', ')}, not '${given ?? ''}'`);
  if (!username || !password) throw wrong(`KAFKA_USERNAME and KAFKA_PASSWORD are needed for ${mechanism}`);
  return { sasl: { mechanism, username, password } };
}

function read(name: string, file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    throw new TwiceproofError('TP_OPTION', `${name} cannot be read: ${(cause as Error).message}`, { cause });
  }
}

function wrong(detail: string): TwiceproofError {
  return new TwiceproofError('TP_OPTION', detail);
}
