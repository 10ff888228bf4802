/** What can be done to a connection. One fault is in force on a connection at a time. */
export type Direction = 'to-server' | 'to-client';

export type Fault = { kind: FaultKind; when?: (clientBytes: Buffer) => boolean } & (
  | {
      /** Both sides are closed at once. With `when`, before the bytes that it saw go on. */
      kind: 'cut';
    }
  | {
      /** Both directions are swallowed, and so is the end of either side: each believes that the other lives. */
      kind: 'black-hole';
    }
  | {
      /** Only this direction is swallowed. */
      kind: 'one-way';
      lost: Direction;
    }
  | {
      /** The request reaches the server; its answer does not come back, and the connection is cut instead. */
      kind: 'lose-answer';
      /** How much of the answer still comes through. Defaults to none. */
      afterAnswerBytes?: number;
    }
  | {
      /** RST to both sides after so many bytes, which may be in the middle of a frame. */
      kind: 'reset';
      direction: Direction;
      afterBytes: number;
    }
  | {
      /** No more than so many bytes in each interval, in each direction. */
      kind: 'drip';
      bytes: number;
      intervalMs: number;
    }
);

export type FaultKind = 'cut' | 'black-hole' | 'one-way' | 'lose-answer' | 'reset' | 'drip';

/** How often what happened, so that a test can prove that its fault really did. */
export interface Counts {
  connections: number;
  open: number;
  /** Passed on. */
  bytes: Record<Direction, number>;
  /** Swallowed. */
  lost: Record<Direction, number>;
  /** On how many connections it had an effect; a fault that was only set has not fired. */
  fired: Record<FaultKind, number>;
}

export function noCounts(): Counts {
  return {
    connections: 0,
    open: 0,
    bytes: { 'to-server': 0, 'to-client': 0 },
    lost: { 'to-server': 0, 'to-client': 0 },
    fired: { cut: 0, 'black-hole': 0, 'one-way': 0, 'lose-answer': 0, reset: 0, drip: 0 },
  };
}

/** For `when`: the client sends this text. It is looked for in each chunk as the socket gives it, not across two. */
export function sends(text: string): (clientBytes: Buffer) => boolean {
  return (clientBytes) => clientBytes.includes(text);
}

export function swallows(fault: Fault | undefined, direction: Direction): boolean {
  return fault?.kind === 'black-hole' || (fault?.kind === 'one-way' && fault.lost === direction);
}

/** Where a fault ends the connection in the midst of what flows. */
export function brinkOf(fault: Fault | undefined, direction: Direction): number | undefined {
  if (fault?.kind === 'lose-answer' && direction === 'to-client') return fault.afterAnswerBytes ?? 0;
  if (fault?.kind === 'reset' && direction === fault.direction) return fault.afterBytes;
  return undefined;
}
