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
  json?: Record<string, () => object>;
}

type Answer = [status: number, text: string, type?: string];

/** For the one who runs it, and not for clients: on a port of its own, and on loopback. Any other path answers which there are. */
export function createAdminServer({ metrics, ready, json = {} }: AdminOptions): Server {
  const answers: Record<string, () => Promise<Answer>> = {
    '/metrics': async () => [200, metrics.text(), contentType],
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
  for (const [path, object] of Object.entries(json)) {
    answers[path] = async () => [200, `${JSON.stringify(object())}\n`, 'application/json'];
  }
  const otherwise: Answer = [404, `${Object.keys(answers).join('\n')}\n`];
  return createServer((request, response) => {
    const answer = request.method === 'GET' ? answers[request.url ?? ''] : undefined;
    (answer?.() ?? Promise.resolve(otherwise))
      .then(([status, text, type = 'text/plain']) => response.writeHead(status, { 'content-type': type }).end(text))
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
