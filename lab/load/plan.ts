/**
 * What is sent and when, from the seed alone: nothing that a server does changes it. Only the moment of
 * an attempt that waits for an outcome depends on the run.
 *
 * Most intents have a key of their own and are sent once. The retried share draws its keys from the hot
 * set by Zipf's law, so that some keys come back again and again, and others once.
 */
import { changesFrom, type Asks } from './changes.ts';
import { hotSetSize, sendsPerIntent, targetsOf, type LoadOptions, type RetryMix } from './options.ts';
import { randomFrom, zipfFrom } from './random.ts';

/**
 * `cut` of the mix is two kinds: the connection goes once the request is sent, or at the answer's first byte.
 * `settle` is none of the plan: the schedule is over, and the outcome is still unknown.
 */
export type RetryKind = 'none' | 'at-once' | 'after-answer' | 'elsewhere' | 'cut-sent' | 'cut-answer' | 'settle';

/** One request on the wire. */
export interface Send extends Asks {
  /** The number of the invocation in the ledger; given when it is sent. */
  invocation: number;
  /** The intended send time, in milliseconds from the start. Latency counts from here. */
  dueMs: number;
  keyNumber: number;
  /** 0 for the first of its intent. */
  attempt: number;
  /** How many attempts follow the first. */
  retries: number;
  kind: RetryKind;
  /** Which of the urls and gRPC addresses. */
  target: number;
  /** The first request of the run with this key. */
  firstOfKey: boolean;
  /** One of the few hottest keys. */
  hottest: boolean;
  /** The next in whatever queue it stands. */
  next: Send | undefined;
}

/** S9 asks for the ten hottest keys against the others. */
export const hottestKeys = 10;

export interface Plan {
  /** The first attempt of the next intent, or undefined at the end. */
  next(): Send | undefined;
}

export function planFrom(options: LoadOptions): Plan {
  const { durationS, keys, retryRate, seed } = options;
  const targets = targetsOf(options).length;
  const hotKeys = hotSetSize(options);
  const random = randomFrom(seed);
  const hotKey = zipfFrom(random, hotKeys, options.hot);
  const nextDueMs = scheduleFrom(options, random);
  const kindFrom = kindsOf(options.mix);
  const asksOf = changesFrom(options);
  const seen = new Uint8Array(hotKeys);
  let coldKey = hotKeys;

  return {
    next() {
      const dueMs = nextDueMs();
      if (dueMs >= durationS * 1_000) return undefined;
      const retried = random() < retryRate;
      const keyNumber = retried ? hotKey() : coldKey++;
      if (keyNumber >= keys) throw new Error(`the ${keys} keys are used up`);
      const firstOfKey = !retried || seen[keyNumber] === 0;
      if (retried) seen[keyNumber] = 1;
      const { operation, order } = asksOf(keyNumber, retried, dueMs);
      return {
        invocation: 0,
        dueMs,
        keyNumber,
        attempt: 0,
        retries: retried ? 1 + Math.floor(random() * 3) : 0,
        kind: retried ? kindFrom(random()) : 'none',
        target: Math.floor(random() * targets),
        operation,
        order,
        firstOfKey,
        hottest: keyNumber < hottestKeys,
        next: undefined,
      };
    },
  };
}

/** The attempt after this one, with the same key and so the same bytes. */
export function nextAttempt(send: Send, dueMs: number, targets: number): Send | undefined {
  if (send.attempt === send.retries) return undefined;
  const target = send.kind === 'elsewhere' ? (send.target + 1) % targets : send.target;
  return { ...send, invocation: 0, dueMs, attempt: send.attempt + 1, target, firstOfKey: false, next: undefined };
}

/** Once more with the same key, for whoever has to know what became of it: at the next process, as this one may be away. */
export function settlingAttempt(send: Send, dueMs: number, targets: number): Send {
  const target = (send.target + 1) % targets;
  const attempt = send.attempt + 1;
  return { ...send, invocation: 0, dueMs, attempt, kind: 'settle', target, firstOfKey: false, next: undefined };
}

/** Whether its attempts go out together, or each waits for the outcome of the one before. */
export function isConcurrent({ kind }: Send): boolean {
  return kind === 'at-once' || kind === 'elsewhere';
}

/** The last attempt of a cut intent keeps its connection, so that somebody hears the answer. */
export function isCut({ kind, attempt, retries }: Send): boolean {
  return (kind === 'cut-sent' || kind === 'cut-answer') && attempt < retries;
}

function scheduleFrom(options: LoadOptions, random: () => number): () => number {
  const gapMs = (1_000 * sendsPerIntent(options)) / options.rate;
  let count = 0;
  let nowMs = 0;
  switch (options.spacing) {
    case 'constant':
      return () => gapMs * count++;
    case 'jitter':
      return () => gapMs * (count++ + random());
    case 'poisson':
      return () => (nowMs -= gapMs * Math.log(1 - random()));
  }
}

function kindsOf(mix: RetryMix): (drawn: number) => RetryKind {
  const weights: [RetryKind, number][] = [
    ['at-once', mix.atOnce],
    ['after-answer', mix.afterAnswer],
    ['elsewhere', mix.elsewhere],
    ['cut-sent', mix.cut / 2],
    ['cut-answer', mix.cut / 2],
  ];
  const total = weights.reduce((sum, [, weight]) => sum + weight, 0);
  return (drawn) => {
    let left = drawn * total;
    for (const [kind, weight] of weights) if ((left -= weight) < 0) return kind;
    return 'at-once';
  };
}
