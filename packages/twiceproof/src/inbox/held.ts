/**
 * Messages that were not processed and wait for a person, each written in the transaction of its inbox row. That row says
 * "dealt with"; the held row is what is left to do, and whoever deletes it does it: it is the token, so two that redrive,
 * or one that dies, give one effect.
 */
import { quotedSchema } from '../schema-name.ts';
import type { InboxOptions } from './accept.ts';
import { holding, type Holding } from './held-hold.ts';
import { operating, type Operating } from './held-operate.ts';
import { settling, type Settling } from './held-settled.ts';
import { taking, type Taking } from './held-take.ts';

export type { HeldFilter, HeldGroup, HeldTally } from './held-operate.ts';
export {
  heldKinds,
  recordHash,
  type HeldEntry,
  type HeldKind,
  type HeldRow,
  type ToHold,
  type Wish,
} from './held-row.ts';
export type { InLine, ToKeep } from './held-take.ts';

/** From the consumer, who holds them and works them off, to the operator, who says what is to become of them. */
export interface Held extends Holding, Taking, Settling, Operating {}

export function createHeld(options: InboxOptions = {}): Held {
  const schema = quotedSchema(options.schema);
  return { ...holding(schema), ...taking(schema), ...settling(schema), ...operating(schema) };
}
