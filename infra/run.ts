/**
 * A run: one program that owns servers. Its directory is `.twiceproof/runs/<id>`, and each server of it
 * carries `twiceproof.run=<id>` among its arguments. That mark is how the servers of a dead run are
 * found again, and why no other process can be taken for one.
 *
 * When the owner dies, even by SIGKILL, the pipe to its reaper closes, and the reaper ends the run. If
 * the reaper was killed too, the next start of anything here does it (`sweepDeadRuns`).
 */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  isStillRunning,
  listProcesses,
  processInfo,
  signalIfStillRunning,
  waitUntilEnded,
  type ProcessInfo,
} from './processes.ts';
import { openStateDirectory, stateDirectory } from './directories.ts';

export interface Run {
  readonly id: string;
  readonly directory: string;
  /** For the data of a server that may have to run as `nobody`. Removed with the run. */
  readonly openDirectory: string;
  /** The argument that marks a server as ours. */
  readonly mark: string;
  /** After the servers were stopped: removes the directory, and lets the reaper go. */
  end(): Promise<void>;
}

interface RunRecord {
  id: string;
  /** What the owner is, for `infra status`, for example `up` or `test`. */
  purpose: string;
  owner: { pid: number; startedAt: string };
  openDirectory: string;
  addresses?: object;
}

export async function beginRun(purpose: string, state: string = stateDirectory()): Promise<Run> {
  await sweepDeadRuns(state);
  const owner = processInfo(process.pid);
  if (!owner) throw new Error('cannot read our own entry in the process table');
  const id = `${purpose}-${randomBytes(4).toString('hex')}`;
  const directory = join(state, 'runs', id);
  const open = openStateDirectory(state);
  const openDirectory = open === state ? join(directory, 'open') : join(open, 'runs', id);
  const record: RunRecord = { id, purpose, owner: { pid: owner.pid, startedAt: owner.startedAt }, openDirectory };

  // Renamed into its place when it is complete, so that a sweep never meets a run without an owner.
  const building = join(state, `new-${id}`);
  mkdirSync(building, { recursive: true });
  writeFileSync(join(building, 'run.json'), JSON.stringify(record));
  mkdirSync(join(state, 'runs'), { recursive: true });
  renameSync(building, directory);
  mkdirSync(openDirectory, { recursive: true, mode: 0o755 });

  const reaper = spawn(process.execPath, [join(import.meta.dirname, 'reaper.ts'), directory], {
    // A session of its own: Ctrl-C, or a kill of the whole process group, must not take the reaper along.
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  reaper.unref();
  reaper.stdin.on('error', () => {}); // A reaper that was killed is no reason to fail; the next start sweeps.
  (reaper.stdin as unknown as { unref(): void }).unref();

  return {
    id,
    directory,
    openDirectory,
    mark: `twiceproof.run=${id}`,
    end: async () => {
      await endRun(directory);
      reaper.ref();
      const gone = reaper.exitCode === null && reaper.signalCode === null ? once(reaper, 'exit') : undefined;
      reaper.stdin.end();
      await gone;
    },
  };
}

/** So that `infra status` can tell where the servers of a run listen. */
export function recordAddresses(run: Run, addresses: object): void {
  const record = readRecord(run.directory);
  if (!record) return;
  const temporary = join(run.directory, 'run.json.new');
  writeFileSync(temporary, JSON.stringify({ ...record, addresses }));
  renameSync(temporary, join(run.directory, 'run.json'));
}

function readRecord(directory: string): RunRecord | undefined {
  const file = join(directory, 'run.json');
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as RunRecord) : undefined;
}

export interface KnownRun extends RunRecord {
  directory: string;
  alive: boolean;
}

export function listRuns(state: string = stateDirectory()): KnownRun[] {
  const runs = join(state, 'runs');
  if (!existsSync(runs)) return [];
  return readdirSync(runs).flatMap((id) => {
    const directory = join(runs, id);
    const record = readRecord(directory);
    return record ? [{ ...record, directory, alive: isStillRunning(record.owner) }] : [];
  });
}

/** Ends what runs left behind whose owner is dead. */
export async function sweepDeadRuns(state: string = stateDirectory()): Promise<void> {
  await Promise.all(
    listRuns(state)
      .filter((run) => !run.alive)
      .map((run) => endRun(run.directory)),
  );
}

/** Ends every server that bears the run's mark, then removes its directories. */
export async function endRun(directory: string): Promise<void> {
  const record = readRecord(directory);
  if (!record) return;
  const servers = serversOf(record.id);
  for (const server of servers) {
    // SIGQUIT is Postgres' immediate shutdown: as hard as SIGKILL for the data, but it takes its
    // children and its shared memory along. The data goes anyway.
    signalIfStillRunning(server, isPostgres(server) ? 'SIGQUIT' : 'SIGKILL');
    if (isPostgres(server)) signalIfStillRunning(server, 'SIGCONT');
  }
  if (!(await waitUntilEnded(servers, 3_000))) {
    for (const server of servers) signalIfStillRunning(server, 'SIGKILL');
    await waitUntilEnded(servers, 3_000);
  }
  rmSync(record.openDirectory, { recursive: true, force: true, maxRetries: 3 });
  rmSync(directory, { recursive: true, force: true, maxRetries: 3 });
}

function serversOf(id: string): ProcessInfo[] {
  const mark = new RegExp(`(^|[ D])twiceproof\\.run=${id}( |$)`);
  return listProcesses().filter(
    ({ args }) => mark.test(args) && (/^\S*postgres /.test(args) || /^\S*java /.test(args)),
  );
}

function isPostgres(server: ProcessInfo): boolean {
  return /^\S*postgres /.test(server.args);
}
