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
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import {
  isStillRunning,
  listProcesses,
  processInfo,
  signalIfStillRunning,
  waitUntilEnded,
  type ProcessInfo,
} from './processes.ts';
import { openStateDirectory, requireFreeSpace, stateDirectory } from './directories.ts';
import { keepLogs } from './failed-runs.ts';
import { freeSharedMemory } from './shared-memory.ts';

export interface Run {
  readonly id: string;
  readonly directory: string;
  /** For the data of a server that may have to run as `nobody`. Removed with the run. */
  readonly openDirectory: string;
  /** The argument that marks a server as ours. */
  readonly mark: string;
  /**
   * After the servers were stopped: removes the directory, and lets the reaper go. With `keepLogs` the logs are
   * moved aside, and it answers where they are.
   */
  end(options?: { keepLogs?: boolean }): Promise<string | undefined>;
}

interface RunRecord {
  id: string;
  /** What the owner is, for `infra status`, for example `up` or `test`. */
  purpose: string;
  owner: { pid: number; startedAt: string };
  /** Where the owner's pid means something: in another container it names another process, or none. */
  world: string;
  addresses?: object;
}

export async function beginRun(purpose: string, state: string = stateDirectory()): Promise<Run> {
  requireFreeSpace(state, 20e6, 'a run');
  await sweepDeadRuns(state);
  const owner = processInfo(process.pid);
  if (!owner) throw new Error('cannot read our own entry in the process table');
  const id = `${purpose}-${randomBytes(4).toString('hex')}`;
  const directory = join(state, 'runs', id);
  const record: RunRecord = { id, purpose, owner: { pid: owner.pid, startedAt: owner.startedAt }, world: thisWorld() };

  // Renamed into its place when it is complete, so that a sweep never meets a run without an owner.
  const building = join(state, `new-${id}`);
  mkdirSync(building, { recursive: true });
  writeRecord(building, record);
  mkdirSync(join(state, 'runs'), { recursive: true });
  renameSync(building, directory);
  const openDirectory = openDirectoryOf(directory);
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
    end: async (options) => {
      const logs = options?.keepLogs ? keepLogs(directory, state) : undefined;
      await endRun(directory);
      reaper.ref();
      const gone = reaper.exitCode === null && reaper.signalCode === null ? once(reaper, 'exit') : undefined;
      reaper.stdin.end();
      await gone;
      return logs;
    },
  };
}

/** Computed and not written down: what is read from a file must not decide what is deleted. */
function openDirectoryOf(directory: string): string {
  const state = dirname(dirname(directory));
  const open = openStateDirectory(state);
  return open === state ? join(directory, 'open') : join(open, 'runs', basename(directory));
}

function thisWorld(): string {
  try {
    return `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()} ${readlinkSync('/proc/self/ns/pid')}`;
  } catch {
    return 'no containers here';
  }
}

/** Only for its owner: it holds the password of a database. */
function writeRecord(directory: string, record: RunRecord): void {
  const temporary = join(directory, 'run.json.new');
  writeFileSync(temporary, JSON.stringify(record), { mode: 0o600 });
  renameSync(temporary, join(directory, 'run.json'));
}

/** So that `infra status` can tell where the servers of a run listen. */
export function recordAddresses(run: Run, addresses: object): void {
  const record = readRecord(run.directory);
  if (record) writeRecord(run.directory, { ...record, addresses });
}

/** Undefined where there is none, or none that can be read: then nothing is known, and nothing is touched. */
function readRecord(directory: string): RunRecord | undefined {
  try {
    const record = JSON.parse(readFileSync(join(directory, 'run.json'), 'utf8')) as RunRecord;
    return record.id === basename(directory) && Number.isInteger(record.owner.pid) ? record : undefined;
  } catch {
    return undefined;
  }
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
    if (!record) return [];
    const alive = record.world !== thisWorld() || isStillRunning(record.owner);
    return [{ ...record, directory, alive }];
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
  if (!readRecord(directory)) return;
  const servers = serversOf(basename(directory));
  for (const server of servers) {
    // SIGQUIT is Postgres' immediate shutdown: as hard as SIGKILL for the data, but it takes its
    // children and its shared memory along. The data goes anyway.
    signalIfStillRunning(server, isA('postgres', server) ? 'SIGQUIT' : 'SIGKILL');
    if (isA('postgres', server)) signalIfStillRunning(server, 'SIGCONT');
  }
  if (!(await waitUntilEnded(servers, 3_000))) {
    for (const server of servers) signalIfStillRunning(server, 'SIGKILL');
    // The record is what they can be found by, so it stays as long as one of them does.
    if (!(await waitUntilEnded(servers, 3_000))) return;
  }
  const openDirectory = openDirectoryOf(directory);
  await freeSharedMemory(join(openDirectory, 'postgres/data'));
  rmSync(openDirectory, { recursive: true, force: true, maxRetries: 3 });
  rmSync(directory, { recursive: true, force: true, maxRetries: 3 });
}

const serverPrograms = ['postgres', 'java', 'pgbouncer'] as const;

function serversOf(id: string): ProcessInfo[] {
  const marks = [`twiceproof.run=${id}`, `-Dtwiceproof.run=${id}`];
  return listProcesses().filter(
    (each) => serverPrograms.some((name) => isA(name, each)) && each.argv.some((argument) => marks.includes(argument)),
  );
}

function isA(program: (typeof serverPrograms)[number], { argv }: ProcessInfo): boolean {
  return basename(argv[0] ?? '') === program;
}
