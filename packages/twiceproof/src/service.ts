/**
 * The one shape of everything that loops: a relay, a consumer, a sweeper. A pass is bounded in size
 * and time; stopping means that the pass under way is finished, and no other begun.
 */
export interface Service {
  /** One bounded pass. */
  runOnce(): Promise<PassResult>;
  /** Passes until the signal is aborted, then returns when the pass under way has ended. */
  run(signal: AbortSignal): Promise<void>;
}

/** `idle` lets the loop wait before the next pass; `busy` means that there was a full batch, go on at once. */
export type PassResult = 'idle' | 'busy';
