/** What has been hit, what shall happen at the hits to come, and who waits for one. */
import { defaultTimeoutMs, within } from './deadline.ts';
import type { Report } from './points-socket.ts';
import type { SupervisedProcess } from './process.ts';

export interface Hit {
  role: string;
  point: string;
  /** The count of this point in this process, from 1; a successor in the role counts anew. */
  hit: number;
  pid: number;
}

export interface Place {
  /** Defaults to any. */
  role?: string;
  point: string;
  /** Defaults to any. */
  hit?: number;
}

export type Action = 'kill' | 'stop' | 'hold';

export interface Trap {
  /** The hit that it fired at. */
  fired(timeoutMs?: number): Promise<Hit>;
  /** Lets go what is held or stopped there. A trap that has not fired is taken away. */
  release(): void;
}

interface Armed {
  place: Place;
  spring(hit: Hit, process: SupervisedProcess, answer: () => void): void;
}

export interface Traps {
  at(place: Place, action: Action): Trap;
  reached(place: Place, timeoutMs?: number): Promise<Hit>;
  readonly hits: readonly Hit[];
  onReport(process: SupervisedProcess, report: Report, answer: () => void): void;
  onStart(process: SupervisedProcess): void;
}

const keptHits = 100_000;

/** `describe` tells how the processes are, for the message of a wait that was in vain. */
export function openTraps(describe: () => string): Traps {
  const hits: Hit[] = [];
  const armed = new Set<Armed>();
  const waiting = new Set<(hit: Hit) => void>();
  /** Who has a role now: what a predecessor has reached does not count for it. */
  const current = new Map<string, number>();
  const inVain = (place: Place): string => `nothing was at ${inWords(place)}; ${summary(hits)}\n${describe()}`;

  const onReport = (process: SupervisedProcess, report: Report, answer: () => void): void => {
    const hit: Hit = { role: process.role, point: report.name, hit: report.hit, pid: report.pid };
    if (hits.length >= 2 * keptHits) hits.splice(0, keptHits);
    hits.push(hit);
    const trap = [...armed].find(({ place }) => matches(place, hit));
    if (trap) {
      armed.delete(trap);
      trap.spring(hit, process, answer);
    } else {
      answer();
    }
    for (const tell of waiting) tell(hit);
  };

  const at = (place: Place, action: Action): Trap => {
    const { promise: fired, resolve, reject } = Promise.withResolvers<Hit>();
    fired.catch(() => {}); // Whoever asks is told; who does not ask shall not see the test process die of it.
    let letGo = (): void => {};
    const trap: Armed = {
      place,
      spring: (hit, process, answer) => {
        if (action !== 'hold' && hit.pid !== process.pid) {
          answer();
          reject(new Error(notTheProgramItself(hit, process)));
          return;
        }
        if (action === 'kill') process.signal('SIGKILL');
        if (action === 'stop') process.freezeAt(answer);
        if (action === 'stop') letGo = () => process.thaw();
        if (action === 'hold') letGo = answer;
        resolve(hit);
      },
    };
    armed.add(trap);
    return {
      fired: async (timeoutMs = defaultTimeoutMs) => within(timeoutMs, fired, () => inVain(place)),
      release: () => {
        armed.delete(trap);
        letGo();
        letGo = () => {};
      },
    };
  };

  const reached = async (place: Place, timeoutMs = defaultTimeoutMs): Promise<Hit> => {
    const pid = place.role === undefined ? undefined : current.get(place.role);
    const before = hits.find((hit) => matches(place, hit) && (pid === undefined || hit.pid === pid));
    if (before) return before;
    const { promise, resolve } = Promise.withResolvers<Hit>();
    const look = (hit: Hit): void => {
      if (matches(place, hit)) resolve(hit);
    };
    waiting.add(look);
    try {
      return await within(timeoutMs, promise, () => inVain(place));
    } finally {
      waiting.delete(look);
    }
  };

  const onStart = ({ role, pid }: SupervisedProcess): void => {
    current.set(role, pid);
  };

  return { at, reached, hits, onReport, onStart };
}

function matches(place: Place, hit: Hit): boolean {
  if (place.role !== undefined && place.role !== hit.role) return false;
  return place.point === hit.point && (place.hit === undefined || place.hit === hit.hit);
}

function inWords({ role, point, hit }: Place): string {
  return `${point}${hit === undefined ? '' : ` for the ${hit}. time`}${role === undefined ? '' : ` in ${role}`}`;
}

function summary(hits: readonly Hit[]): string {
  const counts = Object.entries(Object.groupBy(hits, ({ role, point }) => `${point} in ${role}`));
  return `hits: ${counts.map(([place, of]) => `${place} ${of?.length ?? 0}`).join(', ') || 'none at all'}`;
}

function notTheProgramItself(hit: Hit, { role, pid }: SupervisedProcess): string {
  return `${role} was started as process ${pid}, but ${hit.point} was hit by process ${hit.pid}: start the program itself, not a shell or npm around it`;
}
