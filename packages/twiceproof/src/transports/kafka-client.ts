import type { BaseOptions } from '@platformatic/kafka';
import { TwiceproofError } from '../errors.ts';
import { within } from '../within.ts';

export interface KafkaTransportOptions {
  /** `host:port`, separated by commas, or as a list. */
  bootstrap: string | readonly string[];
  /** Shown in the brokers' logs and metrics. Defaults to `twiceproof`. */
  clientId?: string;
  /** TLS settings as for `node:tls`. */
  tls?: BaseOptions['tls'];
  /** As the client takes it: mechanism, username, password or token. */
  sasl?: BaseOptions['sasl'];
  /**
   * A publish answers within this time, whatever the brokers do. Raise it only together with the
   * relay's idle-in-transaction timeout, which must be longer. Defaults to 13,500, a little less than the relay waits for
   * any transport: it then hears which of a batch were acknowledged.
   */
  publishDeadlineMs?: number;
  /**
   * A record that needs more bytes on the wire is rejected without asking the broker. Raise it
   * together with the topics' `max.message.bytes`. Defaults to 1,048,588, the brokers' own default.
   */
  maxRecordBytes?: number;
}

/** What every client of one transport is made with. */
export interface ClientFactory {
  /**
   * Options of a new client. Its bootstrap list begins one further than that of the client before:
   * the client asks the first broker that accepts a connection, and a frozen one accepts and never answers,
   * so a client that is rebuilt with the same list would be as stuck as the old one.
   */
  base(): BaseOptions;
}

export function createClientFactory(options: KafkaTransportOptions): ClientFactory {
  const brokers = addressesIn(options.bootstrap);
  let made = 0;
  return {
    base() {
      const first = made++ % brokers.length;
      return {
        clientId: options.clientId ?? 'twiceproof',
        bootstrapBrokers: [...brokers.slice(first), ...brokers.slice(0, first)],
        connectTimeout: 3000,
        retryDelay: 250,
        autocreateTopics: false,
        ...(options.tls && { tls: options.tls }),
        ...(options.sasl && { sasl: options.sasl }),
      };
    },
  };
}

/** Without any the client would look for one on this machine. */
function addressesIn(bootstrap: KafkaTransportOptions['bootstrap'] | undefined): string[] {
  const given = typeof bootstrap === 'string' ? bootstrap.split(',') : (bootstrap ?? []);
  const brokers = given.map((broker) => broker.trim()).filter((broker) => broker !== '');
  if (brokers.length > 0) return brokers;
  throw new TwiceproofError('TP_OPTION', 'bootstrap names no broker: host:port of one or more, with commas between');
}

/**
 * Lets go of a client without waiting: `close()` waits for sockets to flush, which a frozen broker
 * never lets them, and an open socket keeps the process alive.
 */
export function discard(client: Closable): void {
  const sockets = [...client.connections].map(([, connection]) => connection.socket);
  client.close(true).catch(() => {});
  for (const socket of sockets) socket?.destroy();
}

export interface Closable {
  connections: Iterable<[string, { socket?: { destroy(): void } }]>;
  close(force?: boolean): Promise<void>;
}

/** The promise's result, or `TP_DEADLINE` after that time. */
export async function doneWithin<T>(ms: number, what: string, promise: Promise<T>): Promise<T> {
  const late = (): Error => new TwiceproofError('TP_DEADLINE', `${what} took longer than ${Math.round(ms)} ms`);
  return within(ms, promise, late);
}
