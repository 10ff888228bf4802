/** One fault, done to the system: from its moment until it is over. */
import { setTimeout as delay } from 'node:timers/promises';
import { sends, type Fault as ProxyFault } from '../../proxy/fault.ts';
import type { Supervised } from '../../supervisor/process.ts';
import type { System } from '../../system/system.ts';
import {
  isWireFault,
  type Fault,
  type Freeze,
  type Kill,
  type Outcome,
  type Rebalance,
  type WireFault,
} from './fault.ts';

export interface Battle {
  system: System;
  /** Since the beginning of the faults. */
  nowMs(): number;
  /** Aborted when the time of the faults is over: what is under way is undone. */
  signal: AbortSignal;
}

/** How long a position, or a target that is away, is waited for. */
const patienceMs = 10_000;
const lookEveryMs = 20;
const recoveryMs = 60_000;
const missed: Outcome = { result: 'missed' };

export async function strike(battle: Battle, fault: Fault): Promise<Outcome> {
  if (isWireFault(fault)) return strikeWire(battle, fault);
  switch (fault.kind) {
    case 'kill':
    case 'freeze':
      return strikeProgram(battle, fault);
    case 'rebalance':
      return rebalance(battle, fault);
    case 'postgres-kill':
    case 'broker-kill':
      return killServer(battle, fault.server);
  }
}

async function strikeProgram(battle: Battle, fault: Kill | Freeze): Promise<Outcome> {
  const { role, position } = fault;
  const deadlineMs = battle.nowMs() + ((fault.kind === 'kill' ? fault.withinMs : undefined) ?? patienceMs);
  // Somebody else may kill it while we wait for its position: then we wait for its successor's.
  while (battle.nowMs() < deadlineMs && !battle.signal.aborted) {
    const program = await running(battle, role, deadlineMs);
    if (!program) break;
    const letGo = position ? await trap(battle, program, fault, deadlineMs) : seize(program, fault);
    if (!letGo) continue;
    const firedAtMs = battle.nowMs();
    if (fault.kind === 'kill') return { result: 'fired', firedAtMs, ...(await recovery(battle, role, program.pid)) };
    await pause(battle, fault.forMs);
    letGo();
    // One that the end of the faults has cut short is past no timeout.
    const isWhole = battle.nowMs() - firedAtMs >= fault.forMs - lookEveryMs;
    return { result: isWhole ? 'fired' : 'missed', firedAtMs };
  }
  return missed;
}

type LetGo = () => void;

function seize(program: Supervised, { kind }: Kill | Freeze): LetGo {
  if (kind === 'kill') program.signal('SIGKILL');
  else program.freeze();
  return () => program.thaw();
}

/** Undefined when it was not hit in time, or the process ended before. */
async function trap(
  { system: { lab }, nowMs, signal }: Battle,
  program: Supervised,
  { kind, role, position }: Kill | Freeze,
  deadlineMs: number,
): Promise<LetGo | undefined> {
  const { point, hit } = position!;
  const soFar = lab.hits.findLast((each) => each.pid === program.pid && each.point === point)?.hit ?? 0;
  const set = lab.at({ role, point, hit: soFar + hit }, kind === 'kill' ? 'kill' : 'stop');
  const fired = set.fired(Math.max(1, deadlineMs - nowMs())).then(
    () => true,
    () => false,
  );
  const over = Promise.withResolvers<false>();
  signal.addEventListener('abort', () => over.resolve(false), { once: true });
  if (await Promise.race([fired, program.exited.then(() => false), over.promise])) return () => set.release();
  set.release();
  return undefined;
}

async function killServer(battle: Battle, name: string): Promise<Outcome> {
  const { postgres, kafka } = battle.system;
  const kept = battle.system.kept.find((each) => each.name === name)!;
  if (!(await until(battle, () => kept.state === 'running', battle.nowMs() + patienceMs))) return missed;
  const { pid } = kept;
  const firedAtMs = battle.nowMs();
  const server = name === 'postgres' ? postgres : kafka.brokers.find(({ id }) => name === `broker-${id}`)!;
  await server.kill();
  return { result: 'fired', firedAtMs, ...(await recovery(battle, name, pid)) };
}

let guests = 0;

/** While Postgres or the brokers are away it cannot join, and is waited for as any target is. */
async function rebalance(battle: Battle, { forMs }: Rebalance): Promise<Outcome> {
  const deadlineMs = battle.nowMs() + patienceMs;
  while (battle.nowMs() < deadlineMs && !battle.signal.aborted) {
    const outcome = await joinFor(battle, forMs);
    if (outcome) return outcome;
    await pause(battle, 10 * lookEveryMs);
  }
  return missed;
}

/** It has joined when lanes are given to it; that takes them from the others. */
async function joinFor(battle: Battle, forMs: number): Promise<Outcome | undefined> {
  const { system } = battle;
  const role = `guest-${(guests += 1)}`;
  let guest: Supervised | undefined;
  try {
    guest = await system.startGuest(role);
    await system.lab.reached({ role, point: 'consumer:assigned' }, patienceMs);
    const firedAtMs = battle.nowMs();
    await pause(battle, forMs);
    return { result: 'fired', firedAtMs };
  } catch {
    return undefined; // It could not start, or the others took too long to let go.
  } finally {
    await leave(guest);
  }
}

async function leave(guest: Supervised | undefined): Promise<void> {
  if (!guest?.running) return;
  guest.signal('SIGTERM');
  const late = setTimeout(() => guest.signal('SIGKILL'), patienceMs);
  await guest.exited;
  clearTimeout(late);
}

async function strikeWire(battle: Battle, fault: WireFault): Promise<Outcome> {
  const proxy = battle.system.wires!.all.get(fault.wire)!;
  const before = proxy.counts.fired[fault.kind];
  const hasFired = (): boolean => proxy.counts.fired[fault.kind] > before;
  if (fault.scope === 'one') proxy.next(proxyFault(fault));
  else proxy.all(proxyFault(fault));
  try {
    const fired = await until(battle, hasFired, battle.nowMs() + patienceMs);
    const firedAtMs = battle.nowMs();
    if (fired && fault.scope === 'all') await pause(battle, fault.forMs);
    return fired ? { result: 'fired', firedAtMs } : missed;
  } finally {
    proxy.heal();
  }
}

function proxyFault({ kind, direction = 'to-server', bytes = 0, sends: text }: WireFault): ProxyFault {
  const when = text === undefined ? {} : { when: sends(text) };
  switch (kind) {
    case 'cut':
    case 'black-hole':
      return { kind, ...when };
    case 'one-way':
      return { kind, lost: direction, ...when };
    case 'lose-answer':
      return { kind, afterAnswerBytes: bytes, ...when };
    case 'reset':
      return { kind, direction, afterBytes: bytes, ...when };
    case 'drip':
      return { kind, bytes, intervalMs: 20, ...when };
  }
}

async function running(battle: Battle, role: string, deadlineMs: number): Promise<Supervised | undefined> {
  const { kept, process } = battle.system;
  const one = kept.find(({ name }) => name === role)!;
  return (await until(battle, () => one.state === 'running' && process(role)?.running === true, deadlineMs))
    ? process(role)
    : undefined;
}

/** Also beyond the time of the faults: it has to come back. */
async function recovery({ system }: Battle, name: string, pid: number): Promise<Pick<Outcome, 'recoveredMs'>> {
  const kept = system.kept.find((each) => each.name === name)!;
  const began = performance.now();
  while (kept.state !== 'running' || kept.pid === pid) {
    if (performance.now() - began > recoveryMs) return {};
    await delay(lookEveryMs);
  }
  return { recoveredMs: Math.round(performance.now() - began) };
}

/** Whether it became true. */
async function until({ nowMs, signal }: Battle, isSo: () => boolean, deadlineMs: number): Promise<boolean> {
  while (!isSo()) {
    if (signal.aborted || nowMs() >= deadlineMs) return false;
    await delay(lookEveryMs);
  }
  return true;
}

async function pause({ signal }: Battle, ms: number): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => {});
}
