import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type pg from 'pg';
import type { Shortcut } from 'twiceproof/http/node';
import { createAdminServer } from '@twiceproof/program/admin';
import { endsWithin } from '@twiceproof/program/ends-within';
import { createGrpcServer, listenGrpc } from './grpc.ts';
import { createHttpServer } from './http.ts';
import { createMetrics } from '@twiceproof/program/metrics';
import type { Operations } from './operations.ts';
import { requireMigrated } from './schema.ts';
import { watchDoors } from './watch.ts';

export interface ServeOptions {
  pool: pg.Pool;
  operations: Operations;
  host: string;
  ports: { http: number; grpc: number; admin: number };
  log(line: string): void;
}

export interface Serving {
  addresses: { http: string; grpc: string; admin: string };
  /** Takes no more, finishes what is under way, and cuts off what is not finished in time; answers whether all was. */
  drain(graceMs: number): Promise<boolean>;
}

const loopback = '127.0.0.1';

export async function serve({ pool, operations, host, ports, log }: ServeOptions): Promise<Serving> {
  let draining = false;
  const metrics = createMetrics();
  const observe = watchDoors(metrics, log);
  const { server: http, short } = createHttpServer({ operations, database: pool, observe: observe('http') });
  const grpc = createGrpcServer({ operations, observe: observe('grpc') });
  const admin = createAdminServer({
    metrics,
    ready: async () => {
      if (draining) throw new Error('it is stopping');
      await requireMigrated(pool);
    },
  });
  const closeAll = async (): Promise<void> => {
    await Promise.all([closeHttp(http, short), new Promise((resolve) => grpc.tryShutdown(resolve))]);
  };
  const forceAll = (): void => {
    grpc.forceShutdown();
    http.closeAllConnections();
    short.closeAllConnections();
    admin.closeAllConnections();
  };
  const closeAdmin = (): void => {
    admin.close();
    admin.closeIdleConnections();
  };
  try {
    const addresses = {
      http: await listenHttp(http, host, ports.http),
      grpc: `${host}:${await listenGrpc(grpc, host, ports.grpc)}`,
      admin: await listenHttp(admin, loopback, ports.admin),
    };
    return {
      addresses,
      drain: async (graceMs) => {
        draining = true;
        const finished = await endsWithin(graceMs, closeAll());
        closeAdmin();
        forceAll();
        return finished;
      },
    };
  } catch (error) {
    closeAdmin();
    forceAll();
    http.close();
    throw error;
  }
}

async function listenHttp(server: Server, host: string, port: number): Promise<string> {
  await once(server.listen(port, host), 'listening');
  const bracketed = host.includes(':') ? `[${host}]` : host;
  return `http://${bracketed}:${(server.address() as AddressInfo).port}`;
}

/** What is kept alive is closed as soon as it has its answer; Node itself would wait for the next request. */
async function closeHttp(server: Server, short: Shortcut): Promise<void> {
  const closing = setInterval(() => {
    server.closeIdleConnections();
    short.closeIdleConnections();
  }, 20);
  await new Promise((resolve) => server.close(resolve));
  clearInterval(closing);
}
