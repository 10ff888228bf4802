/** All that a trial needs, on loopback and of its own: Postgres, a proxy before it, and two processes in each shape. */
import { startPostgres, type PostgresServer } from '@twiceproof/infra/postgres';
import pg from 'pg';
import { startProxy, type FaultProxy } from '../proxy/proxy.ts';
import { supervise, type Lab } from '../supervisor/supervise.ts';
import { startFleet, type Fleet, type Shape } from './fleet.ts';

export interface World {
  server: PostgresServer;
  /** Between A and Postgres; B has nothing between. */
  proxy: FaultProxy;
  lab: Lab;
  fleets: Record<Shape, Fleet>;
  /** For the judge. */
  database: pg.Pool;
  /** Whose rows are those of one trial only. */
  newTenant(): string;
  close(): Promise<void>;
}

export async function openWorld(): Promise<World> {
  const server = await startPostgres();
  const proxy = await startProxy({ target: { host: '127.0.0.1', port: server.port } });
  const lab = await supervise();
  const database = new pg.Pool({ connectionString: server.url, max: 1 });
  database.on('error', () => {}); // The server is killed in some trials, and an idle connection tells so here.
  const throughProxy = new URL(server.url);
  throughProxy.host = proxy.address;
  const databaseUrls = { a: throughProxy.href, b: server.url };
  const [group, handler] = await Promise.all([
    startFleet(lab, { shape: 'group', databaseUrls }),
    startFleet(lab, { shape: 'handler', databaseUrls }),
  ]);
  let tenants = 0;
  return {
    server,
    proxy,
    lab,
    fleets: { group, handler },
    database,
    newTenant: () => `tenant-${(tenants += 1)}`,
    close: async () => {
      await Promise.all([group.close(), handler.close()]);
      await lab.close();
      await proxy.close();
      await database.end();
      await server.close();
    },
  };
}
