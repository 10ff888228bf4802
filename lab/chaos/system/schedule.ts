/** Which faults come when: drawn from a seed, or the few of a headline shot. */
import { isWireFault, wireKinds, type Fault, type FaultKind, type Outcome, type WireFault } from './fault.ts';
import { brokers, kindOf, points, roles, wires } from './places.ts';
import { randomFrom, type Random } from './random.ts';

export type Path = 'edge replays' | 'wire duplicates' | 'inbox duplicates' | 'status changes';

export type EffectOrder = (typeof effectOrders)[number];
export const effectOrders = ['inbox-first', 'charge-first'] as const;

export interface Schedule {
  version: 1;
  seed: number;
  /** Of the faults. */
  seconds: number;
  /** Requests a second. */
  rate: number;
  /** Share of messages that payments delivers to itself again. */
  dupRate: number;
  uniqueCharge: boolean;
  /** Which of its two writes payments does first. Defaults to the inbox, as the library does. */
  effectOrder?: EffectOrder | undefined;
  /** PgBouncer stands between the programs and their databases. Defaults to false. */
  pooled?: boolean | undefined;
  /** What must have happened, or the run has shown nothing. */
  mustSee: readonly Path[];
  minOrders: number;
  /** When it was run, each has its outcome. */
  faults: readonly (Fault & { outcome?: Outcome })[];
}

export type ScheduleOptions = Pick<
  Schedule,
  'seed' | 'seconds' | 'rate' | 'uniqueCharge' | 'effectOrder' | 'pooled' | 'minOrders'
> & {
  /** Of a headline shot there is none. Defaults to 0.05. */
  dupRate?: number;
  /** Programs that are struck more often, and where each of them can be. Defaults to none: all alike. */
  aim?: Readonly<Partial<Record<string, readonly string[]>>>;
  /** Wires that are away for a while, all at once, soon after the beginning. Defaults to none. */
  outages?: readonly string[];
};

/** A card is a kind of fault, and for kills and freezes the kind of program it is for. */
const deck: readonly (readonly [FaultKind, string?])[] = [
  ['kill', 'orders'],
  ['kill', 'relay'],
  ['kill', 'payments'],
  ['freeze', 'orders'],
  ['freeze', 'relay'],
  ['freeze', 'payments'],
  ['postgres-kill'],
  ['broker-kill'],
  ['rebalance'],
  ...wireKinds.map((kind) => [kind] as const),
];

const meanGapMs = 2_600;
/** Nothing begins so close to the end: the longest has to be over by then. */
const quietTailMs = 12_000;
/** How long a target is left alone behind a fault, so that two do not undo each other. */
const restMs = 3_000;

/**
 * Past the timeouts of the relays' watchdog (6 s), of a group's session (6 s), of a rebalance (10 s), of a client (3 s), and
 * of transactions of the edge that stand idle (10 s).
 */
const freezeMs = [10_500, 12_000] as const;
/** Also past those of a consumer (30 s), in runs that have the time for it: every fourth. */
const longFreezeMs = [31_000, 34_000] as const;
const longRunS = 150;
const usualDupRate = 0.05;
/** A position has to come within seconds, also on a machine that is busy. */
const maxHit = 6;

/** Deck after deck, shuffled, at random moments: so each kind comes in the first deck, and none is rare. */
export function drawSchedule({ aim = {}, outages = [], ...options }: ScheduleOptions): Schedule {
  const random = randomFrom(options.seed);
  const places = { ...points, ...aim };
  const lastMs = options.seconds * 1_000 - quietTailMs;
  const decks = Math.max(1, Math.round(lastMs / meanGapMs / deck.length));
  const gapMs = lastMs / (decks * deck.length);
  const away = outages.map((wire): WireFault => ({ ...outage, wire }));
  const busy = new Map(away.map(({ wire, atMs, forMs }) => [wire, atMs + forMs + restMs]));
  const cards = Array.from({ length: decks }, () => random.shuffled(deck)).flat();
  const faults = cards.map((card, n) => {
    const atMs = Math.round(gapMs * n + random.between(0, Math.floor(gapMs)));
    const isFree = (target: string): boolean =>
      [target, ownerOf(target)].every((each) => (busy.get(each) ?? 0) <= atMs);
    const leftMs = options.seconds >= longRunS ? options.seconds * 1_000 - atMs : 0;
    const fault = drawFault(random, card, atMs, { isFree, places, leftMs });
    const untilMs = atMs + ('forMs' in fault ? fault.forMs : 0) + restMs;
    for (const target of [targetOf(fault), ownerOf(targetOf(fault))])
      busy.set(target, Math.max(busy.get(target) ?? 0, untilMs));
    return fault;
  });
  return {
    version: 1,
    ...options,
    dupRate: options.dupRate ?? usualDupRate,
    mustSee: ['edge replays', 'wire duplicates', 'inbox duplicates', 'status changes'],
    faults: [...aimedKills(random, aim, options.seconds * 1_000), ...away, ...faults],
  };
}

const aimedShots = 4;

/**
 * Kills are what most recipes die of, so there are more of them: by turns of either process, from the beginning, while it
 * works, and each waits for its position until the end.
 */
function aimedKills(random: Random, aim: NonNullable<ScheduleOptions['aim']>, endMs: number): Fault[] {
  return Object.entries(aim).flatMap(([kind, where = []]) =>
    Array.from({ length: where.length > 0 ? aimedShots : 0 }, (_, n): Fault => {
      const atMs = 1_000 + n * meanGapMs;
      const position = { point: random.pick(where), hit: random.between(1, maxHit) };
      return { kind: 'kill', atMs, role: `${kind}-${1 + (n % 2)}`, position, withinMs: endMs - atMs };
    }),
  );
}

/** So long that whoever tries again at once has nothing to show for it, and that much gathers meanwhile. */
const outage = { kind: 'cut', atMs: 2_000, scope: 'all', forMs: 3_000 } as const;

interface Board {
  isFree(target: string): boolean;
  /** The points of each kind of program. */
  places: Readonly<Partial<Record<string, readonly string[]>>>;
  /** For what takes long; none in a short run. */
  leftMs: number;
}

function drawFault(
  random: Random,
  [kind, program]: (typeof deck)[number],
  atMs: number,
  { isFree, places, leftMs }: Board,
): Fault {
  const free = (targets: readonly string[]): string => {
    const open = targets.filter(isFree);
    return random.pick(open.length > 0 ? open : targets);
  };
  switch (kind) {
    case 'kill':
    case 'freeze': {
      const role = free(roles.filter((each) => kindOf(each) === program));
      const position = { point: random.pick(places[kindOf(role)]!), hit: random.between(1, maxHit) };
      // Every fourth strikes by the clock alone: it may find what no point has a name for.
      const where = random.between(1, 4) === 1 ? {} : { position };
      if (kind === 'kill') return { kind, atMs, role, ...where };
      const isLong = leftMs > 2 * longFreezeMs[1] && random.between(1, 4) === 1;
      const [least, most] = isLong ? longFreezeMs : freezeMs;
      return { kind, atMs, role, ...where, forMs: random.between(least, most) };
    }
    case 'postgres-kill':
      return { kind, atMs, server: 'postgres' };
    case 'broker-kill':
      return { kind, atMs, server: free(brokers) };
    case 'rebalance':
      return { kind, atMs, forMs: random.between(4_000, 8_000) };
    default:
      return drawWireFault(random, kind, atMs, free(wires));
  }
}

/** With the end of its text, or BEGIN ISOLATION LEVEL READ COMMITTED would do. The answer has 18 bytes. */
const commit = 'COMMIT\0';

function drawWireFault(random: Random, kind: WireFault['kind'], atMs: number, wire: string): WireFault {
  const direction = random.pick(['to-server', 'to-client'] as const);
  // The end of a transaction is the moment at which a lost answer is worth most.
  const sends = /^(relay|payments)-\d:postgres$/.test(wire) && random.between(1, 2) === 1 ? { sends: commit } : {};
  switch (kind) {
    case 'cut':
      return { kind, atMs, wire, scope: random.pick(['one', 'all']), forMs: random.between(1_000, 3_000), ...sends };
    case 'lose-answer':
      return {
        kind,
        atMs,
        wire,
        scope: 'one',
        forMs: 5_000,
        bytes: random.between(0, 'sends' in sends ? 17 : 60),
        ...sends,
      };
    case 'reset':
      return { kind, atMs, wire, scope: 'one', forMs: 5_000, direction, bytes: random.between(1, 400) };
    case 'one-way':
      return { kind, atMs, wire, scope: 'all', forMs: random.between(2_000, 6_000), direction };
    case 'black-hole':
      return { kind, atMs, wire, scope: 'all', forMs: random.between(2_000, 8_000) };
    case 'drip':
      return { kind, atMs, wire, scope: 'all', forMs: random.between(2_000, 5_000), bytes: random.between(50, 500) };
  }
}

export function targetOf(fault: Fault): string {
  if (isWireFault(fault)) return fault.wire;
  if (fault.kind === 'rebalance') return 'guest';
  return 'role' in fault ? fault.role : fault.server;
}

/** What it strikes, whichever of them: `relay`, `broker`, or the wire `orders:grpc`. */
export function classOf(fault: Fault): string {
  return targetOf(fault).replace(/-\d+/, '');
}

/** A process that is frozen or dead sends nothing: a wire of it has nothing to lose then. */
function ownerOf(target: string): string {
  return target.split(':')[0]!;
}

/** SPEC I5. */
export const crashPoints = {
  commit: { kind: 'relay', point: 'relay:before-send', mustSee: ['edge replays'] },
  publish: {
    kind: 'relay',
    point: 'relay:acknowledged',
    mustSee: ['edge replays', 'wire duplicates', 'inbox duplicates'],
  },
  effect: { kind: 'payments', point: 'consumer:handling', mustSee: ['edge replays'] },
} as const satisfies Record<string, { kind: string; point: string; mustSee: readonly Path[] }>;

export type CrashPoint = keyof typeof crashPoints;

/** Of `effect`, where the charge is written first. */
const betweenChargeAndInbox = 'inbox:asking';

const shots = 4;

/** The same death several times, by turns of either process, and nothing else. */
export function shotSchedule(crashPoint: CrashPoint, options: ScheduleOptions): Schedule {
  const { kind, mustSee } = crashPoints[crashPoint];
  const point = options.effectOrder === 'charge-first' ? betweenChargeAndInbox : crashPoints[crashPoint].point;
  const random = randomFrom(options.seed);
  const gapMs = (options.seconds * 1_000 - quietTailMs) / shots;
  const faults = Array.from({ length: shots }, (_, n): Fault => {
    const position = { point, hit: random.between(1, maxHit) };
    return { kind: 'kill', atMs: Math.round(gapMs * n), role: `${kind}-${1 + (n % 2)}`, position };
  });
  return { version: 1, ...options, dupRate: 0, mustSee, faults };
}

/** Fewer faults, and no longer than they take: it shall show a failure, so it need not show that it could. */
export function withOnly(faults: Schedule['faults'], schedule: Schedule): Schedule {
  const overMs = Math.max(...faults.map((fault) => fault.atMs + ('forMs' in fault ? fault.forMs : 0)));
  const seconds = Math.min(schedule.seconds, Math.ceil((overMs + quietTailMs) / 1_000));
  return { ...schedule, seconds, minOrders: 0, mustSee: [], faults };
}

/** Each kind once, sorted. */
export function kindsOf({ faults }: Pick<Schedule, 'faults'>): FaultKind[] {
  return [...new Set(faults.map(({ kind }) => kind))].sort();
}
