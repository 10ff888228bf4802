/** What chaos does to the system. Each fault is data: it can be written down, run again, and left out. */
import type { Direction, FaultKind as WireKind } from '../../proxy/fault.ts';

/** The n-th time that a role comes to a point, counted from the moment at which the trap is set. */
export interface Position {
  point: string;
  hit: number;
}

/** From the beginning of the faults; one with a position waits for that from then on. */
interface Timed {
  atMs: number;
}

/** SIGKILL. */
export interface Kill extends Timed {
  kind: 'kill';
  role: string;
  position?: Position;
  /** How long its position is waited for; a few seconds unless told. */
  withinMs?: number;
}

/** SIGSTOP for so long, then SIGCONT. */
export interface Freeze extends Timed {
  kind: 'freeze';
  role: string;
  position?: Position;
  forMs: number;
}

/** SIGKILL to a server. */
export interface ServerKill extends Timed {
  kind: 'postgres-kill' | 'broker-kill';
  /** Such as `broker-2`. */
  server: string;
}

/** A third payments joins the group, and leaves it after so long. */
export interface Rebalance extends Timed {
  kind: 'rebalance';
  forMs: number;
}

export interface WireFault extends Timed {
  kind: WireKind;
  /** Such as `relay-1:postgres`. */
  wire: string;
  /** One connection, or all of them until it heals. */
  scope: 'one' | 'all';
  forMs: number;
  /** Where the client sends this text; otherwise at once. */
  sends?: string;
  /** Of `one-way` and `reset`. */
  direction?: Direction;
  /** After which `reset` and `lose-answer` end the connection; of which `drip` lets so many through at a time. */
  bytes?: number;
}

export type Fault = Kill | Freeze | ServerKill | Rebalance | WireFault;
export type FaultKind = Fault['kind'];

export const wireKinds = ['cut', 'black-hole', 'one-way', 'lose-answer', 'reset', 'drip'] as const;

export interface Outcome {
  /** Missed: nothing came to its position, or its target was away. */
  result: 'fired' | 'missed';
  /** From the beginning of the faults. */
  firedAtMs?: number;
  /** From SIGKILL until a successor could serve. */
  recoveredMs?: number;
}

export function isWireFault(fault: Fault): fault is WireFault {
  return isWireKind(fault.kind);
}

export function isWireKind(kind: string): boolean {
  return (wireKinds as readonly string[]).includes(kind);
}

export function inWords(fault: Fault): string {
  if (isWireFault(fault)) {
    const { kind, wire, scope, forMs, sends } = fault;
    const when = sends === undefined ? '' : ` at ${sends.replace('\0', '')}`;
    return `${kind} on ${scope === 'one' ? 'one connection' : 'all connections'} of ${wire}${when}, ${forMs} ms`;
  }
  switch (fault.kind) {
    case 'kill':
    case 'freeze': {
      const { kind, role, position } = fault;
      const where = position ? ` at ${position.point}, hit ${position.hit}` : '';
      return `${kind} ${role}${where}${fault.kind === 'freeze' ? ` for ${fault.forMs} ms` : ''}`;
    }
    case 'rebalance':
      return `a third payments for ${fault.forMs} ms`;
    case 'postgres-kill':
    case 'broker-kill':
      return `kill ${fault.server}`;
  }
}
