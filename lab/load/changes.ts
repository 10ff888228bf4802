/**
 * Which intents change the status of an order, and of which one, from the seed alone. Only an order that was
 * asked for some time ago is changed, so that its answer, which names it, can be expected to be there. One order
 * in eight can be changed at all: so a fifth of the intents gives those two or more events each, some seconds
 * apart, some minutes.
 */
import type { LoadOptions } from './options.ts';
import type { Send } from './plan.ts';
import { randomFrom } from './random.ts';

/** An order that intents to come will change. Its id is what the answer to its create named. */
export interface Order {
  dueMs: number;
  id: string | undefined;
  /** Changes that were due before its id was known. They go out as soon as it is. */
  held: Send[];
}

export interface Asks {
  operation: 'create' | 'set-status';
  /** Of a create: where its id is to be kept, if it can be changed later. Of a change: the order. */
  order: Order | undefined;
}

const changedOneIn = 8;
/** Only the latest are changed: those of the last two minutes at 5,000 requests/s. */
const ringSize = 65_536;
const onlyCreate: Asks = { operation: 'create', order: undefined };

/** What an intent asks. A hot key comes more than once, and asks the same each time. */
export function changesFrom(
  options: Pick<LoadOptions, 'seed' | 'statusRate' | 'statusLagMs'>,
): (keyNumber: number, isHot: boolean, dueMs: number) => Asks {
  const { seed, statusRate, statusLagMs } = options;
  if (statusRate === 0) return () => onlyCreate;
  // Of its own, so that keys, retries and schedule are the same with and without changes.
  const random = randomFrom(seed ^ 0x2545f491);
  const ring: Order[] = [];
  const ofHotKeys = new Map<number, Asks>();
  let creates = 0;
  let kept = 0;
  let ripe = 0;

  const draw = (dueMs: number): Asks => {
    const oldest = Math.max(0, kept - ringSize);
    ripe = Math.max(ripe, oldest);
    while (ripe < kept && ring[ripe % ringSize]!.dueMs + statusLagMs <= dueMs) ripe++;
    const isChange = random() < statusRate;
    const which = oldest + Math.floor(random() * (ripe - oldest));
    if (isChange && ripe > oldest) return { operation: 'set-status', order: ring[which % ringSize] };
    if (creates++ % changedOneIn !== 0) return onlyCreate;
    const order: Order = { dueMs, id: undefined, held: [] };
    ring[kept++ % ringSize] = order;
    return { operation: 'create', order };
  };

  return (keyNumber, isHot, dueMs) => {
    if (!isHot) return draw(dueMs);
    const before = ofHotKeys.get(keyNumber);
    if (before) return before;
    const drawn = draw(dueMs);
    ofHotKeys.set(keyNumber, drawn);
    return drawn;
  };
}
