/** What connections and calls have in common: the way to one process, for one request at a time. */
import type { Digest } from './digest.ts';
import type { Status } from './identity.ts';
import type { Send } from './plan.ts';

export type DoorKind = 'http' | 'grpc';

/**
 * Why an invocation is over. Two say that the server cannot have seen it: `refused` (nobody listened), and
 * `no-connection` (none came before the timeout).
 */
export type Reason = 'answered' | 'cut' | 'timeout' | 'refused' | 'no-connection' | 'reset' | 'protocol';

/** What the request asks that was prepared last. */
export interface Asked {
  key(): string;
  /** Of a create. */
  accountId: number;
  amountCents: number;
  /** Of a change of status. */
  status: Status;
}

/** What came back; until the next request is started. */
export interface Answer {
  /** Of HTTP, or the code of gRPC. */
  status: number;
  digest: Digest;
  /** The order that the body names, if it names one. */
  orderId(): string | undefined;
  version(): number | undefined;
  /** The state of the order, in one word. */
  orderStatus(): string | undefined;
  /** Some of it, for people. */
  sample(maxBytes: number): string;
}

export interface Line {
  door: DoorKind;
  asked: Asked;
  answer: Answer;
  /** In flight. */
  current: Send | undefined;
  /** Makes this `current`, without sending anything. */
  prepare(send: Send): void;
  start(nowMs: number): void;
  /** Gives the request up, and whatever carried it. */
  abandon(reason: 'cut' | 'timeout'): void;
}

/** `current` is empty again; `answer` holds what came. */
export type OnDone = (line: Line, send: Send, reason: Reason) => void;

/** All lines to one process. */
export interface Door {
  lines: readonly Line[];
  /** Resolves once the process can be reached; rejects if nobody is there. */
  open(): Promise<void>;
  /** Whether a request may be sent now. While a process is away, they wait. */
  admits(): boolean;
  close(): void;
}
