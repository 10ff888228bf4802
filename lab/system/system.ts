/**
 * The whole system as real processes on loopback, owned by this one: Postgres, brokers, and two each of orders, relay and
 * payments. Whatever dies is started again at its address, servers too. Programs belong to a supervisor and servers to a
 * run, and both have reapers: nothing is left behind, however the owner ends.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { KafkaCluster } from '@twiceproof/infra/kafka';
import { freePorts } from '@twiceproof/infra/ports';
import { startPgBouncer, type PgBouncer } from '@twiceproof/infra/pgbouncer';
import type { PostgresServer } from '@twiceproof/infra/postgres';
import type { Run } from '@twiceproof/infra/run';
import type { Supervised } from '../supervisor/process.ts';
import { supervise, type Lab } from '../supervisor/supervise.ts';
import { makeDatabases, type DatabaseUrls } from './databases.ts';
import { openFleet } from './fleet.ts';
import type { Kept } from './keep.ts';
import { layOutPrograms, type Program, type ProgramOptions, type Substitutes } from './programs.ts';
import { startServers } from './servers.ts';
import { openWires, type Wires } from './wires.ts';

export interface SystemOptions extends ProgramOptions {
  run: Run;
  brokers: 1 | 3;
  /** Proxies on all wires. Defaults to none. */
  proxied?: boolean;
  /** PgBouncer, in transaction mode, between the programs and their databases. Defaults to none. */
  pooled?: boolean | undefined;
  /** Where servers keep their data beyond the run. Defaults to nowhere. */
  keptDirectory?: string | undefined;
  signal: AbortSignal;
  progress(text: string): void;
}

export interface System {
  readonly lab: Lab;
  readonly postgres: PostgresServer;
  readonly kafka: KafkaCluster;
  /** Undefined where nothing stands before the databases. */
  readonly pooler: PgBouncer | undefined;
  readonly databases: DatabaseUrls;
  readonly programs: readonly Program[];
  /** Servers first. */
  readonly kept: readonly Kept[];
  /** Undefined without proxies. */
  readonly wires: Wires | undefined;
  /** Where clients find the doors of orders. */
  readonly doors: { http: readonly string[]; grpc: readonly string[] };
  /** The process that has this role now, or had it last. */
  process(role: string): Supervised | undefined;
  /** One more member of the group of payments, which is not started again. */
  startGuest(role: string): Promise<Supervised>;
  /** When everything runs and can serve; throws what does not. */
  untilUp(timeoutMs: number): Promise<void>;
  /** SIGTERM to all programs; answers the roles of those that did not end well. */
  stopPrograms(): Promise<string[]>;
  close(): Promise<void>;
}

export async function startSystem(options: SystemOptions): Promise<System> {
  const { run, brokers, keptDirectory, progress } = options;
  await using made = new AsyncDisposableStack();
  const closing = new AbortController();
  const signal = AbortSignal.any([options.signal, closing.signal]);
  const programs = await layOutPrograms(options);
  const [postgresPort = 0, poolerPort = 0] = await freePorts(2);
  const databasePort = options.pooled ? poolerPort : postgresPort;
  const wires = options.proxied ? await openWires(programs, { brokers, databasePort }) : undefined;
  made.defer(async () => wires?.close());

  progress(`starting Postgres and ${brokers === 1 ? 'a broker' : 'three brokers'} ...`);
  const servers = await startServers({ run, brokers, postgresPort, wires, keptDirectory, signal, progress });
  made.defer(async () => servers.close());
  const { postgres, kafka } = servers;
  const databases = await makeDatabases(postgres.url);
  const pooler = options.pooled ? await startPgBouncer({ url: postgres.url, run, port: poolerPort }) : undefined;
  made.defer(async () => pooler?.close());

  progress('starting two each of orders, relay and payments ...');
  const lab = await supervise();
  const fleet = openFleet({
    lab,
    programs,
    run,
    wires,
    postgresUrl: pooler?.url ?? postgres.url,
    keeperUrl: pooler && postgres.url,
    bootstrap: kafka.bootstrap,
    options,
  });
  made.defer(async () => {
    const left = fleet.leaveAlone();
    // Ends what is being started too: nothing else would.
    await lab.close();
    await left;
  });
  // Before anything is stopped: a server that is being started again is not waited for.
  made.defer(() => closing.abort());
  const kept = [...servers.kept, ...fleet.kept];
  const undo = made.move();
  return {
    lab,
    postgres,
    kafka,
    pooler,
    databases,
    programs,
    kept,
    wires,
    doors: doorsOf(programs, wires, options.substitutes),
    process: fleet.process,
    startGuest: fleet.startGuest,
    untilUp: async (timeoutMs) => untilUp(kept, timeoutMs, signal),
    stopPrograms: fleet.stop,
    close: async () => undo.disposeAsync(),
  };
}

const lookEveryMs = 100;

async function untilUp(kept: readonly Kept[], timeoutMs: number, signal: AbortSignal): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const missing = kept.filter(({ state }) => state !== 'running');
    if (missing.length === 0) return;
    signal.throwIfAborted();
    if (performance.now() > deadline) {
      const reasons = missing.map(({ name, trouble = 'it has not said why' }) => `${name}: ${trouble}`);
      throw new Error(`within ${timeoutMs / 1_000} s these did not come up:\n${reasons.join('\n')}`);
    }
    await delay(lookEveryMs);
  }
}

/** What takes the place of orders speaks HTTP only. */
function doorsOf(
  programs: readonly Program[],
  wires: Wires | undefined,
  substitutes: Substitutes | undefined,
): System['doors'] {
  const orders = programs.flatMap(({ role, doors }) => (doors ? [{ role, ...doors }] : []));
  const at = (role: string, door: 'http' | 'grpc', port: number): string =>
    wires?.all.get(`${role}:${door}`)?.address ?? `127.0.0.1:${port}`;
  return {
    http: orders.map(({ role, http }) => `http://${at(role, 'http', http)}`),
    grpc: substitutes?.orders ? [] : orders.map(({ role, grpc }) => at(role, 'grpc', grpc)),
  };
}
