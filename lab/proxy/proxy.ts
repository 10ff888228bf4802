/**
 * A small fault proxy on loopback, between a client and Postgres, Kafka or an HTTP server. It is
 * transparent until a fault is set, and each fault that has an effect is counted.
 *
 *   const proxy = await startProxy({ target: { host: '127.0.0.1', port: 5432 } });
 *   proxy.next({ kind: 'lose-answer', when: sends('COMMIT') });
 *   ... the client commits, and never learns it ...
 *   await proxy.fired('lose-answer');
 */
import { EventEmitter, once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { connectThrough, destroy, use, type Connection, type Surroundings } from './connection.ts';
import { noCounts, type Counts, type Fault, type FaultKind } from './fault.ts';

export interface FaultProxy {
  readonly port: number;
  /** `host:port`. */
  readonly address: string;
  readonly counts: Readonly<Counts>;
  /** On every connection, those that are open included, until `heal`. With `when`: on each from where it is true. */
  all(fault: Fault): void;
  /** On one connection only: the next that is opened or sends something (with `when`: something for which it is true). */
  next(fault: Fault): void;
  /** Transparent again, except for connections that have lost bytes: these are reset, as nothing can mend them. */
  heal(): void;
  /** Waits until a fault of this kind has had an effect on so many connections since the start. */
  fired(kind: FaultKind, options?: { times?: number; timeoutMs?: number }): Promise<void>;
  close(): Promise<void>;
}

export async function startProxy({ target }: { target: { host: string; port: number } }): Promise<FaultProxy> {
  const counts = noCounts();
  const connections = new Set<Connection>();
  const events = new EventEmitter();
  let everywhere: Fault | undefined;
  let nextOnly: Fault | undefined;

  const surroundings: Surroundings = {
    counts,
    onFired: () => events.emit('fired'),
    take: (clientBytes) => {
      if (nextOnly && takesHold(nextOnly, clientBytes)) {
        const taken = nextOnly;
        nextOnly = undefined;
        return taken;
      }
      return everywhere && takesHold(everywhere, clientBytes) ? everywhere : undefined;
    },
  };
  // Half open, so that the end of one direction is passed on as that, and can be swallowed.
  const sockets = { allowHalfOpen: true, noDelay: true };
  const server = createServer(sockets, (client) => {
    counts.connections += 1;
    counts.open += 1;
    const upstream = connect({ ...sockets, ...target });
    const connection = connectThrough(client, upstream, surroundings);
    connections.add(connection);
    bothClosed(client, upstream, () => {
      counts.open -= 1;
      connections.delete(connection);
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;

  return {
    port,
    address: `127.0.0.1:${port}`,
    counts,
    all: (fault) => {
      everywhere = fault;
      if (!fault.when) for (const connection of connections) use(connection, fault);
    },
    next: (fault) => {
      nextOnly = fault;
    },
    heal: () => {
      everywhere = undefined;
      nextOnly = undefined;
      for (const connection of connections) use(connection, undefined);
    },
    fired: async (kind, { times = 1, timeoutMs = 10_000 } = {}) => {
      const signal = AbortSignal.timeout(timeoutMs);
      while (counts.fired[kind] < times) {
        await once(events, 'fired', { signal }).catch((cause: unknown) => {
          const text = `within ${timeoutMs / 1000} s the fault ${kind} did not fire ${times} times: ${JSON.stringify(counts)}`;
          throw new Error(text, { cause });
        });
      }
    },
    close: async () => {
      const closed = once(server, 'close');
      server.close();
      for (const connection of connections) destroy(connection);
      await closed;
    },
  };
}

function takesHold({ when }: Fault, clientBytes: Buffer | undefined): boolean {
  return !when || (clientBytes !== undefined && when(clientBytes));
}

function bothClosed(one: Socket, other: Socket, then: () => void): void {
  let closed = 0;
  for (const socket of [one, other]) {
    socket.once('close', () => {
      closed += 1;
      if (closed === 2) then();
    });
  }
}
