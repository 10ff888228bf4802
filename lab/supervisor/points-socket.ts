/** Our end of the socket that TWICEPROOF_POINTS names: lines of reports come in, ids go back as answers. */
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { createInterface } from 'node:readline';

/** As the program under test writes it. `hit` counts this name in this process, from 1. */
export interface Report {
  id: number;
  name: string;
  hit: number;
  pid: number;
}

export interface PointsSocket {
  /** Every point that waits is let go. */
  close(): Promise<void>;
}

export async function listenForPoints(
  path: string,
  onReport: (report: Report, answer: () => void) => void,
): Promise<PointsSocket> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    const lines = createInterface({ input: socket });
    // It was killed; that is what we are here for. Lines tell of an error of their socket once more.
    for (const each of [socket, lines]) each.on('error', () => {});
    lines.on('line', (line) => {
      const report = JSON.parse(line) as Report;
      onReport(report, () => {
        if (socket.writable) socket.write(`${report.id}\n`);
      });
    });
  }).listen(path);
  await once(server, 'listening');
  return {
    close: async () => {
      const closed = once(server, 'close');
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
