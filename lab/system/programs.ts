/** The programs of the system and how each is called. Each has its ports for good: a successor takes the same. */
import { freePorts } from '@twiceproof/infra/ports';

export const topic = 'order.events';
/** Of payments at the brokers, as it is by default. */
export const group = 'payments';
export const kinds = ['orders', 'relay', 'payments'] as const;
export type Kind = (typeof kinds)[number];

export interface Program {
  /** Such as `relay-2`. */
  role: string;
  kind: Kind;
  args: readonly string[];
  /** Where its metrics are. */
  admin: string;
  /** Of orders only. */
  doors?: { http: number; grpc: number };
}

export interface ProgramOptions {
  /** The share of messages that payments delivers to itself again. Defaults to none. */
  dupRate?: number;
  /** Of the duplicates. */
  seed?: number;
  /** Whether the database refuses a second charge, which would hide a broken inbox. Defaults to false. */
  uniqueCharge?: boolean;
  /** Which of its two writes payments does first. Defaults to the inbox. */
  effectOrder?: 'inbox-first' | 'charge-first' | undefined;
  /** Scripts that take the place of our own programs. Defaults to none. */
  substitutes?: Substitutes | undefined;
}

export type Substitutes = Readonly<Partial<Record<Kind, string>>>;

const ofEachKind = 2;

/** In the order in which they have to be, and short: a lab has no half a minute for each process that stands still. */
export const relayTimes = { publishDeadlineMs: 4_000, idleTimeoutMs: 5_000, watchdogMs: 6_000 };

export async function layOutPrograms(options: ProgramOptions): Promise<Program[]> {
  const roles = kinds.flatMap((kind) => Array.from({ length: ofEachKind }, (_, n) => ({ kind, n: n + 1 })));
  const ports = await freePorts(3 * roles.length);
  return roles.map(({ kind, n }) => {
    const [admin = 0, http = 0, grpc = 0] = ports.splice(0, 3);
    return {
      role: `${kind}-${n}`,
      kind,
      admin: `http://127.0.0.1:${admin}`,
      args: [
        `--admin-port=${admin}`,
        ...argsOf(kind, { ...options, seed: (options.seed ?? 1) + n }, { http, grpc }),
        // One of the relays has both shards under way at once, whenever the other has none.
        ...(kind === 'relay' && n === 2 ? ['--lanes=2'] : []),
        // And one of payments two transactions, so that what it delivers to itself again may meet itself.
        ...(kind === 'payments' && n === 2 && options.effectOrder !== 'charge-first' ? ['--workers=2'] : []),
      ],
      ...(kind === 'orders' && { doors: { http, grpc } }),
    };
  });
}

/** A third member of the group of payments, who comes and goes. */
export function guestOf(options: ProgramOptions): readonly string[] {
  return ['--admin-port=0', ...argsOf('payments', options, { http: 0, grpc: 0 })];
}

function argsOf(kind: Kind, options: ProgramOptions, { http, grpc }: { http: number; grpc: number }): string[] {
  switch (kind) {
    case 'orders':
      return [`--port=${http}`, `--grpc-port=${grpc}`, '--grace-ms=2000'];
    case 'relay':
      return [
        `--publish-deadline-ms=${relayTimes.publishDeadlineMs}`,
        `--idle-timeout-ms=${relayTimes.idleTimeoutMs}`,
        `--watchdog-ms=${relayTimes.watchdogMs}`,
        '--poll-interval-ms=25',
        '--grace-ms=5000',
      ];
    case 'payments':
      return [
        ...(options.uniqueCharge ? [] : ['--no-unique-charge']),
        ...(options.effectOrder ? [`--effect-order=${options.effectOrder}`] : []),
        ...(options.dupRate ? [`--dup-rate=${options.dupRate}`, `--seed=${options.seed ?? 1}`] : []),
        '--grace-ms=5000',
      ];
  }
}
