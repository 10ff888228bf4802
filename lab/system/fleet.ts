/** The programs of the system as processes of a supervisor, which are started again. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Run } from '@twiceproof/infra/run';
import { nodeFlags } from '../shared/node-flags.ts';
import type { Supervised } from '../supervisor/process.ts';
import type { Lab } from '../supervisor/supervise.ts';
import { onServer } from './databases.ts';
import { childEnvironment, root } from './environment.ts';
import { keep, type Kept, type Life } from './keep.ts';
import { guestOf, type Kind, type Program, type ProgramOptions } from './programs.ts';
import type { Wires } from './wires.ts';

export interface FleetOptions {
  lab: Lab;
  programs: readonly Program[];
  /** What they print goes there, into `programs/<role>.log`. */
  run: Run;
  wires: Wires | undefined;
  /** Where the servers, or the pooler, are themselves, without a proxy. */
  postgresUrl: string;
  /** The server itself, where a pooler stands at the other address. */
  keeperUrl: string | undefined;
  bootstrap: string;
  options: ProgramOptions;
}

export interface Fleet {
  readonly kept: readonly Kept[];
  process(role: string): Supervised | undefined;
  startGuest(role: string): Promise<Supervised>;
  stop(): Promise<string[]>;
  /** No more starts; answers when none is under way. */
  leaveAlone(): Promise<void>;
}

const readyTimeoutMs = 30_000;
const stopTimeoutMs = 10_000;

export function openFleet(given: FleetOptions): Fleet {
  const { lab, programs, run, wires, postgresUrl, keeperUrl, bootstrap, options } = given;
  const logs = join(run.directory, 'programs');
  mkdirSync(logs, { recursive: true });
  const current = new Map<string, Supervised>();

  async function launch(role: string, kind: Kind, args: readonly string[]): Promise<Supervised> {
    const database = kind === 'payments' ? 'payments' : 'orders';
    // A guest has no wire of its own, and so nothing between itself and the servers.
    const wire = wires?.all.get(`${role}:postgres`);
    const brokers = wire && wires?.sideDoors.map(({ advertisedPort }) => `127.0.0.1:${advertisedPort}`).join();
    const started = await lab.start({
      role,
      command: process.execPath,
      args: [...nodeFlags, options.substitutes?.[kind] ?? `apps/${kind}/main.ts`, '--json', ...args],
      env: {
        ...childEnvironment(),
        DATABASE_URL: onServer(postgresUrl, database, wire?.address),
        KAFKA_BROKERS: brokers ?? bootstrap,
        ...(keeperUrl !== undefined && { KEEPER_DATABASE_URL: onServer(keeperUrl, database) }),
      },
      cwd: root,
      logFile: join(logs, `${role}.log`),
    });
    current.set(role, started);
    return started;
  }

  const kept = programs.map(({ role, kind, args }) =>
    keep({ name: role, kind, start: async () => whenReady(await launch(role, kind, args)) }),
  );
  const leaveAlone = async (): Promise<void> => {
    await Promise.all(kept.map(async (each) => each.leaveAlone()));
  };
  return {
    kept,
    process: (role) => current.get(role),
    startGuest: async (role) => {
      const guest = await launch(role, 'payments', guestOf(options));
      await whenReady(guest);
      return guest;
    },
    stop: async () => {
      await leaveAlone();
      const roles = programs.map(({ role }) => role);
      const ends = await Promise.all(roles.map(async (role) => endsWell(current.get(role))));
      return roles.filter((_, n) => !ends[n]);
    },
    leaveAlone,
  };
}

/** One that does not become ready is ended, so that another can take its place. */
async function whenReady(started: Supervised): Promise<Life> {
  try {
    const { ready } = await started.firstJsonLine<{ ready?: boolean }>(readyTimeoutMs);
    if (!ready) throw new Error(`it is not ready: ${started.describe()}`);
    return { pid: started.pid, ended: started.exited };
  } catch (error) {
    await started.kill();
    throw error;
  }
}

/** Told to stop, it ends in time and with 0. */
async function endsWell(program: Supervised | undefined): Promise<boolean> {
  if (!program?.running) return false;
  program.thaw(); // One that is frozen hears no signal.
  program.signal('SIGTERM');
  const late = setTimeout(() => program.signal('SIGKILL'), stopTimeoutMs);
  const { code } = await program.exited;
  clearTimeout(late);
  return code === 0;
}
