import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { contentType, type Metrics } from './metrics.ts';
import { Refusal } from './program.ts';

export interface AdminOptions {
  metrics: Metrics;
  /** Rejects with the reason why not. */
  ready(): Promise<void>;
  /** Answered as JSON, by their paths. */
  objects?: Record<string, () => object>;
}

/** For the one who runs it and not for clients: on a port of its own, and on loopback. */
export function createAdminServer({ metrics, ready, objects = {} }: AdminOptions): Server {
  const answers: Record<string, () => Promise<[status: number, text: string]>> = {
    '/metrics': async () => [200, metrics.text()],
    '/livez': async () => [200, 'alive\n'],
    '/readyz': async () => {
      try {
        await ready();
        return [200, 'ready\n'];
      } catch (error) {
        return [503, `not ready: ${error instanceof Error ? error.message : String(error)}\n`];
      }
    },
  };
  for (const [path, object] of Object.entries(objects)) {
    answers[path] = async () => [200, `${JSON.stringify(object())}\n`];
  }
  return createServer((request, response) => {
    const answer = request.method === 'GET' ? answers[request.url ?? ''] : undefined;
    const given = answer ? answer() : Promise.resolve([404, `${Object.keys(answers).join('\n')}\n`] as const);
    given
      .then(([status, text]) => {
        const type = objects[request.url ?? ''] ? 'application/json' : contentType;
        response.writeHead(status, { 'content-type': type }).end(text);
      })
      .catch(() => response.destroy());
  });
}

/** Answers where it is. */
export async function listenAdmin(server: Server, port: number): Promise<string> {
  try {
    await once(server.listen(port, '127.0.0.1'), 'listening');
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code !== 'EADDRINUSE') throw cause;
    throw new Refusal(`Port ${port} is taken.`, 'Choose another by --admin-port; 0 takes a free one.');
  }
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
