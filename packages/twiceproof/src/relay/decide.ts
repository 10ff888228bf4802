import type { MessageId } from '../message.ts';
import type { SourcedMessage } from '../source.ts';
import type { PublishOutcome } from '../transport.ts';

export interface Decided {
  /** So many from the beginning are acknowledged or parked: the source may advance so far, and not further. */
  done: number;
  parked: { index: number; reason: string }[];
  /** All of them, also those behind the first that is not. */
  acknowledged: SourcedMessage[];
  /** Why something has to wait. */
  trouble: unknown;
}

/** What the outcomes of a batch come to. A message without one has to wait: nobody may take it for done. */
export function decide(messages: readonly SourcedMessage[], outcomes: ReadonlyMap<MessageId, PublishOutcome>): Decided {
  const blocked = new Set<string>();
  const decided: Decided = { done: messages.length, parked: [], acknowledged: [], trouble: undefined };
  messages.forEach((message, index) => {
    const outcome = outcomes.get(message.id) ?? { outcome: 'withheld' };
    const isBehind = blocked.has(message.aggregateId);
    if (outcome.outcome === 'rejected') {
      blocked.add(message.aggregateId);
      decided.parked.push({ index, reason: outcome.error.message });
    } else if (isBehind && outcome.outcome !== 'acknowledged') {
      decided.parked.push({ index, reason: 'behind a message that is parked' });
    } else if (outcome.outcome === 'acknowledged') {
      decided.acknowledged.push(message);
    } else {
      decided.done = Math.min(decided.done, index);
      if ('error' in outcome) decided.trouble ??= outcome.error;
    }
  });
  decided.parked = decided.parked.filter(({ index }) => index < decided.done);
  return decided;
}
