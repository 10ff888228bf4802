/** Two real processes of Orders on one database: A, to which things happen, and B, to which nothing does. */
import { join } from 'node:path';
import type { Exit, Supervised } from '../supervisor/process.ts';
import type { Lab } from '../supervisor/supervise.ts';
import type { Action, Trap } from '../supervisor/traps.ts';
import { openGrpcDoor, type GrpcDoor } from './grpc-door.ts';

export type Shape = 'group' | 'handler';
export type Role = 'a' | 'b';

export interface Orders {
  process: Supervised;
  http: string;
  grpc: GrpcDoor;
}

export interface Fleet {
  /** The process that has this role now; while A is being replaced, its successor once that is ready. */
  at(role: Role): Promise<Orders>;
  /** What happens to A when it comes to this point for the n-th time from now. */
  trap(point: string, nth: number, action: Action): Promise<Trap>;
  /** Once A is dead: how it ended. Its successor is started at once. */
  replaceA(): Promise<Exit>;
  /** Only our connections; the processes are the lab's. */
  close(): Promise<void>;
}

export interface FleetOptions {
  shape: Shape;
  /** Where each finds Postgres. */
  databaseUrls: Record<Role, string>;
}

const root = join(import.meta.dirname, '../..');
const startTimeoutMs = 20_000;

export async function startFleet(lab: Lab, { shape, databaseUrls }: FleetOptions): Promise<Fleet> {
  const start = async (role: Role): Promise<Orders> => startOrders(lab, `${shape}-${role}`, shape, databaseUrls[role]);
  const current: Record<Role, Promise<Orders>> = { a: start('a'), b: start('b') };
  await Promise.all([current.a, current.b]);

  const replaceA = async (): Promise<Exit> => {
    const { process, grpc } = await current.a;
    const { promise: successor, resolve, reject } = Promise.withResolvers<Orders>();
    successor.catch(() => {}); // Whoever waits for it is told.
    current.a = successor;
    const exit = await process.exited;
    grpc.close();
    start('a').then(resolve, reject);
    return exit;
  };
  return {
    at: async (role) => current[role],
    trap: async (point, nth, action) => {
      const { role, pid } = (await current.a).process;
      const soFar = lab.hits.findLast((hit) => hit.pid === pid && hit.point === point)?.hit ?? 0;
      return lab.at({ role, point, hit: soFar + nth }, action);
    },
    replaceA,
    close: async () => {
      for (const orders of await Promise.allSettled(Object.values(current))) {
        if (orders.status === 'fulfilled') orders.value.grpc.close();
      }
    },
  };
}

async function startOrders(lab: Lab, role: string, shape: Shape, databaseUrl: string): Promise<Orders> {
  const ports = ['--port=0', '--grpc-port=0', '--admin-port=0'];
  const supervised = await lab.start({
    role,
    command: process.execPath,
    args: ['--conditions=twiceproof-source', 'apps/orders/main.ts', '--json', ...ports, `--shape=${shape}`],
    env: { DATABASE_URL: databaseUrl },
    cwd: root,
  });
  const { http, grpc } = await supervised.firstJsonLine<{ http: string; grpc: string }>(startTimeoutMs);
  return { process: supervised, http, grpc: await openGrpcDoor(grpc) };
}
