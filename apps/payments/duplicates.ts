/**
 * For experiments: a transport that delivers a share of its messages once more, in one of three ways.
 *
 * - at once: behind itself in the same batch
 * - elsewhere: in a batch of another lane, while its own is under way, so that two transactions have the same id. It may
 *   be processed there first; so only what is the first of its key in its batch is chosen, or its key would lose its order.
 * - later: in some batch, after its own was settled
 *
 * What is added is never the last of a batch, and the broker never hears of it.
 */
import type { Batch, Delivery, Lane, Subscription, Transport } from 'twiceproof/transport';

export interface DuplicatesOptions {
  /** From 0 to 1. */
  rate: number;
  seed: number;
  onInjected(count: number): void;
}

const shortestWaitBatches = 5;
const longestWaitBatches = 50;
/** More are not kept: then the next ones come later in vain. */
const maxWaiting = 10_000;

export function withDuplicates(transport: Transport, options: DuplicatesOptions): Transport {
  return {
    ...transport,
    subscribe: async (wanted) => duplicating(await transport.subscribe(wanted), options),
  };
}

function duplicating(subscription: Subscription, { rate, seed, onInjected }: DuplicatesOptions): Subscription {
  const random = randomFrom(seed);
  const injected = new WeakSet<Delivery>();
  /** Chosen to come later, when they are settled. */
  const chosen = new WeakSet<Delivery>();
  /** Of batches that are under way. */
  let elsewhere: Delivery[] = [];
  let later: { delivery: Delivery; fromBatch: number }[] = [];
  let batches = 0;

  function again(delivery: Delivery): Delivery {
    const copy = { ...delivery };
    injected.add(copy);
    return copy;
  }

  function choose(delivery: Delivery, isFirstOfKey: boolean, isLast: boolean): 'at once' | undefined {
    if (random() >= rate) return undefined;
    const way = random() * 3;
    if (way < 1 && !isLast) return 'at once';
    if (way < 2 && isFirstOfKey) elsewhere.push(delivery);
    else chosen.add(delivery);
    return undefined;
  }

  function takeDue(lane: Lane): Delivery[] {
    const isElsewhere = (each: Delivery): boolean =>
      each.lane.topic === lane.topic && each.lane.partition !== lane.partition;
    const isDue = ({ delivery, fromBatch }: (typeof later)[number]): boolean =>
      fromBatch <= batches && delivery.lane.topic === lane.topic;
    const due = [...elsewhere.filter(isElsewhere), ...later.filter(isDue).map(({ delivery }) => delivery)];
    elsewhere = elsewhere.filter((each) => !isElsewhere(each));
    later = later.filter((each) => !isDue(each));
    return due;
  }

  function mix({ lane, deliveries }: Batch): Delivery[] {
    const due = takeDue(lane);
    const keys = new Set<string>();
    const mixed = deliveries.flatMap((delivery, n) => {
      const key = Buffer.from(delivery.key ?? []).toString('latin1');
      const isFirstOfKey = !keys.has(key);
      keys.add(key);
      const isLast = n === deliveries.length - 1;
      return choose(delivery, isFirstOfKey, isLast) === 'at once' ? [delivery, again(delivery)] : [delivery];
    });
    for (const delivery of due) mixed.splice(Math.floor(random() * mixed.length), 0, again(delivery));
    onInjected(mixed.length - deliveries.length);
    return mixed;
  }

  function queueForLater(settled: readonly Delivery[]): void {
    const gone = new Set(settled);
    const missed = new Set(elsewhere.filter((each) => gone.has(each)));
    elsewhere = elsewhere.filter((each) => !missed.has(each));
    for (const delivery of settled) {
      if (later.length >= maxWaiting || !(chosen.has(delivery) || missed.has(delivery))) continue;
      const wait = shortestWaitBatches + Math.floor(random() * (longestWaitBatches - shortestWaitBatches));
      later.push({ delivery, fromBatch: batches + wait });
    }
  }

  return {
    ...subscription,
    receive: async (wanted) => {
      const batch = await subscription.receive(wanted);
      if (!batch) return undefined;
      batches += 1;
      return { ...batch, deliveries: mix(batch) };
    },
    settle: async (deliveries) => {
      const real = deliveries.filter((each) => !injected.has(each));
      queueForLater(real);
      return subscription.settle(real);
    },
  };
}

/** From 0 to below 1. A shift register: the same on every machine, and good enough to choose by. */
function randomFrom(seed: number): () => number {
  let state = Math.imul(seed, 0x9e3779b1) | 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}
