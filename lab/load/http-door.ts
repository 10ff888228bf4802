/** The connections to one process over HTTP. Those that are lost are opened again by the requests that need them. */
import { createConnection, type ConnectionOptions } from './connection.ts';
import { createGate } from './gate.ts';
import type { Door, OnDone } from './line.ts';

export function createHttpDoor(
  url: string,
  size: number,
  options: Omit<ConnectionOptions, 'host' | 'port' | 'onOpen' | 'onDone'>,
  onDone: OnDone,
): Door {
  const { hostname, port } = new URL(url);
  const gate = createGate();
  const connections = Array.from({ length: size }, () =>
    createConnection({
      ...options,
      host: hostname.replace(/^\[|\]$/g, ''),
      port: Number(port || 80),
      onOpen: gate.opened,
      onDone(line, send, reason) {
        if (reason === 'refused' || reason === 'no-connection') gate.refused();
        else gate.opened();
        onDone(line, send, reason);
      },
    }),
  );
  return {
    lines: connections,
    open: async () => {
      await Promise.all(connections.map((connection) => connection.open()));
    },
    admits: gate.admits,
    close: () => {
      for (const connection of connections) connection.close();
    },
  };
}
