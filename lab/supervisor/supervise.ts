/**
 * Starts real programs whose points are armed, and decides what happens at each point: by role, name
 * and n-th hit a process is held, killed or frozen there. It knows the programs only by their socket,
 * their output and their signals.
 *
 *   const lab = await supervise();
 *   const trap = lab.at({ role: 'orders-1', point: 'edge:claimed', hit: 3 }, 'kill');
 *   const orders = await lab.start({ role: 'orders-1', command: process.execPath, args: ['apps/orders/main.ts', '--json'] });
 *   const { http } = await orders.firstJsonLine<{ http: string }>();
 *   ... requests ...
 *   await trap.fired();
 *   await orders.exited;
 *   await lab.close();
 *
 * Whatever it started ends with it. `close` does that, and so does its reaper when this process dies
 * without: the same idea as infra/run.ts, a tiny process at the other end of a pipe.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { endAllOf } from './ours.ts';
import { listenForPoints, type PointsSocket } from './points-socket.ts';
import { startProcess, type ProgramCall, type Supervised, type SupervisedProcess } from './process.ts';
import { openTraps, type Action, type Hit, type Place, type Trap } from './traps.ts';

export interface Lab {
  start(call: ProgramCall): Promise<Supervised>;
  /**
   * What happens at the next hit that matches, once. It may be said before the process is started.
   * `hold`: the point waits until `release`. `kill`: SIGKILL while it waits there. `stop`: SIGSTOP while
   * it waits there, until `thaw` or `release`.
   */
  at(place: Place, action: Action): Trap;
  /** The first hit that matches, one that has been or one that comes. */
  reached(place: Place, timeoutMs?: number): Promise<Hit>;
  /** Every hit, oldest first; only the oldest of more than 100,000 are dropped. */
  readonly hits: readonly Hit[];
  /** Ends everything that was started, with SIGKILL. */
  close(): Promise<void>;
}

export async function supervise(): Promise<Lab> {
  // Short, since the path of a unix socket has no more than about 100 characters.
  const directory = mkdtempSync(join(tmpdir(), 'tp-lab-'));
  const letReaperGo = startReaper(directory);
  const processes: SupervisedProcess[] = [];
  const sockets: PointsSocket[] = [];
  const traps = openTraps(() => processes.map((each) => each.describe()).join('\n\n'));

  let starts = 0;
  const starting = new Set<string>();
  const start = async (call: ProgramCall): Promise<Supervised> => {
    if (starting.has(call.role) || processes.some(({ role, running }) => role === call.role && running)) {
      throw new Error(`${call.role} runs already`);
    }
    starting.add(call.role);
    try {
      // A socket of its own tells whose report it is, whichever process writes it.
      const path = join(directory, String((starts += 1)));
      sockets.push(await listenForPoints(path, (report, answer) => traps.onReport(started, report, answer)));
      const started = await startProcess(call, path);
      processes.push(started);
      traps.onStart(started);
      return started;
    } finally {
      starting.delete(call.role);
    }
  };

  const close = async (): Promise<void> => {
    for (const each of processes) each.signal('SIGKILL');
    await endAllOf(directory);
    await Promise.all(processes.map(async ({ exited }) => exited));
    await Promise.all(sockets.map(async (socket) => socket.close()));
    rmSync(directory, { recursive: true, force: true });
    await letReaperGo();
  };
  return { start, at: traps.at, reached: traps.reached, hits: traps.hits, close };
}

/** Answers a function that ends the reaper, when nothing is left for it to do. */
function startReaper(directory: string): () => Promise<void> {
  const env = { ...process.env };
  delete env['TWICEPROOF_POINTS']; // A lab inside a lab: the outer one must not take our reaper for its own program.
  const reaper = spawn(process.execPath, [join(import.meta.dirname, 'reaper.ts'), directory], {
    // A session of its own: Ctrl-C, or a kill of the whole process group, must not take the reaper along.
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
    env,
  });
  reaper.unref();
  reaper.stdin.on('error', () => {}); // A reaper that was killed is no reason to fail.
  (reaper.stdin as unknown as { unref(): void }).unref();
  return async () => {
    reaper.ref();
    const gone = reaper.exitCode === null && reaper.signalCode === null ? once(reaper, 'exit') : undefined;
    reaper.stdin.end();
    await gone;
  };
}
