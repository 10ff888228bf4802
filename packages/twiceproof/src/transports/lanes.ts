import { TwiceproofError } from '../errors.ts';
import type { AssignedLane, Batch, Delivery, Lane, Position, ReceiveOptions, SubscribeOptions } from '../transport.ts';

/**
 * One lane while it is ours. Records go fetched -> `buffer` -> handed out (`inFlight`) -> settled.
 * `inFlight` begins at the first delivery that is not settled, so what has left it is a contiguous
 * run and `settledTo` may be committed. When the lane is taken away the state is revoked for good:
 * if the lane comes back, it comes back as a new state.
 */
export interface LaneState {
  readonly lane: Lane;
  readonly revocation: AbortController;
  paused: boolean;
  /** Where the next record to buffer is. */
  next: bigint;
  buffer: Delivery[];
  bufferBytes: number;
  inFlight: Delivery[];
  settledBeyondGap: Set<Delivery>;
}

export function createLane(lane: Lane, start: bigint): LaneState {
  return {
    lane,
    revocation: new AbortController(),
    paused: false,
    next: start,
    buffer: [],
    bufferBytes: 0,
    inFlight: [],
    settledBeyondGap: new Set(),
  };
}

export function isRevoked(state: LaneState): boolean {
  return state.revocation.signal.aborted;
}

export function revokeLane(state: LaneState): void {
  state.buffer = [];
  state.bufferBytes = 0;
  state.revocation.abort(new TwiceproofError('TP_LANE_REVOKED', `${laneName(state.lane)} was taken away`));
}

/** Puts a record behind those that wait. */
export function bufferDelivery(state: LaneState, delivery: Delivery & { position: Position }): void {
  state.buffer.push(delivery);
  state.bufferBytes += sizeOf(delivery);
  state.next = delivery.position.offset + 1n;
}

/** Marks deliveries as done and answers the position after the contiguous run, if that has moved. */
export function settleInLane(state: LaneState, deliveries: readonly Delivery[]): bigint | undefined {
  for (const delivery of deliveries) state.settledBeyondGap.add(delivery);
  let done = 0;
  while (done < state.inFlight.length && state.settledBeyondGap.delete(state.inFlight[done]!)) done += 1;
  if (done === 0) return undefined;
  const last = state.inFlight[done - 1]!;
  state.inFlight = state.inFlight.slice(done);
  return last.position!.offset + 1n;
}

/**
 * Where a lane starts: as chosen, else where its group has settled to, else at the earliest record.
 * A position outside the log means that records were deleted unread or that the topic is not the one
 * it was: then the earliest is the only start that skips nothing. `freshEnd` reads the end of the
 * log again, since the chosen position may have been written after `lane.end` was read.
 */
export async function startOf(
  lane: AssignedLane,
  chosen: readonly Position[],
  freshEnd: () => Promise<bigint>,
  onTrouble: SubscribeOptions['onTrouble'],
): Promise<bigint> {
  const choice = chosen.find((position) => position.topic === lane.topic && position.partition === lane.partition);
  const start = choice?.offset ?? lane.committed ?? lane.earliest;
  if (start >= lane.earliest && (start <= lane.end || start <= (await freshEnd()))) return start;
  onTrouble?.(positionLost(lane, start));
  return lane.earliest;
}

export function positionLost(lane: Lane, position: bigint): TwiceproofError {
  return new TwiceproofError(
    'TP_POSITION_LOST',
    `${laneName(lane)} has no position ${position}, it is read from its earliest record`,
  );
}

/**
 * Hands out batches of lanes in turn and lets receivers wait. `refill` is asked to fill the buffers
 * before a lane is chosen, `drained` is told when a buffer has become smaller.
 */
export function createReceiver(hooks: { refill?(): void; drained?(): void } = {}) {
  let lanes: LaneState[] = [];
  let turn = 0;
  let closed = false;
  const waiting = new Set<() => void>();
  const ownerOf = new WeakMap<Delivery, LaneState>();

  function wake(): void {
    for (const resume of waiting) resume();
  }

  function takeBatch(maxRecords: number): Batch | undefined {
    hooks.refill?.();
    for (let tried = 0; tried < lanes.length; tried += 1) {
      const state = lanes[turn++ % lanes.length]!;
      if (state.paused || state.inFlight.length > 0 || state.buffer.length === 0) continue;
      const deliveries = state.buffer.splice(0, maxRecords);
      for (const delivery of deliveries) {
        ownerOf.set(delivery, state);
        state.bufferBytes -= sizeOf(delivery);
      }
      state.inFlight = deliveries.slice();
      hooks.drained?.();
      return { lane: state.lane, deliveries, signal: state.revocation.signal };
    }
    return undefined;
  }

  return {
    wake,
    get lanes(): readonly LaneState[] {
      return lanes;
    },
    /** These lanes are ours now. */
    assign(states: LaneState[]): void {
      lanes = states;
      wake();
    },
    /** Takes every lane away at once and answers which they were. */
    revokeAll(): Lane[] {
      const gone = lanes;
      lanes = [];
      for (const state of gone) revokeLane(state);
      return gone.map((state) => state.lane);
    },
    setPaused(lane: Lane, paused: boolean): void {
      const state = lanes.find((s) => s.lane.topic === lane.topic && s.lane.partition === lane.partition);
      if (state) state.paused = paused;
      if (!paused) wake();
    },
    async receive({ maxRecords, waitMs, signal }: ReceiveOptions): Promise<Batch | undefined> {
      const deadline = performance.now() + waitMs;
      for (;;) {
        if (closed) throw new TwiceproofError('TP_CLOSED', 'receive on a closed subscription');
        if (signal?.aborted) return undefined;
        const batch = takeBatch(maxRecords);
        if (batch) return batch;
        const left = deadline - performance.now();
        if (left <= 0) return undefined;
        await waitForWake(waiting, left, signal);
      }
    },
    /** Deliveries by the lane that handed them out; undefined collects those of nobody. */
    byLane(deliveries: readonly Delivery[]): Map<LaneState | undefined, Delivery[]> {
      return Map.groupBy(deliveries, (delivery) => ownerOf.get(delivery));
    },
    close(): void {
      closed = true;
      wake();
    },
  };
}

export type Receiver = ReturnType<typeof createReceiver>;

function waitForWake(waiting: Set<() => void>, ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const resume = (): void => {
      clearTimeout(timer);
      waiting.delete(resume);
      signal?.removeEventListener('abort', resume);
      resolve();
    };
    const timer = setTimeout(resume, ms);
    waiting.add(resume);
    signal?.addEventListener('abort', resume, { once: true });
  });
}

/** About what a record takes in memory besides its bytes: a topic of empty ones has to be bounded too. */
const recordBytes = 200;

function sizeOf({ key, value, headers }: Delivery): number {
  const ofHeaders = headers.reduce((sum, [name, bytes]) => sum + name.length + bytes.length, 0);
  return recordBytes + (key?.length ?? 0) + value.length + ofHeaders;
}

export function laneName(lane: Lane): string {
  return `${lane.topic}/${lane.partition}`;
}
