import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { TwiceproofError } from '../errors.ts';
import type { SourcedMessage } from '../source.ts';
import type { PublishOutcome } from '../transport.ts';
import { decide } from './decide.ts';

const kinds = ['acknowledged', 'rejected', 'refused', 'unknown', 'withheld'] as const;

/** Without a kind: nobody has said what became of it. */
interface Sent {
  key: string;
  kind: (typeof kinds)[number] | undefined;
}

const sent: fc.Arbitrary<Sent> = fc.record({
  key: fc.constantFrom('a', 'b', 'c'),
  kind: fc.constantFrom(...kinds, undefined),
});

function messageOf({ key }: Sent, n: number): SourcedMessage {
  const payload = new Uint8Array(0);
  return { id: `id ${n}`, topic: 't', aggregateId: key, type: 'x', payload, createdAt: new Date(0) };
}

function outcomeOf(kind: (typeof kinds)[number], n: number): PublishOutcome {
  if (kind === 'acknowledged' || kind === 'withheld') return { outcome: kind };
  return { outcome: kind, error: new TwiceproofError('TP_TOPIC_UNKNOWN', `of message ${n}`) };
}

function decideOn(all: readonly Sent[]): ReturnType<typeof decide> & { messages: SourcedMessage[] } {
  const messages = all.map(messageOf);
  const outcomes = new Map(all.flatMap(({ kind }, n) => (kind ? [[`id ${n}`, outcomeOf(kind, n)] as const] : [])));
  return { messages, ...decide(messages, outcomes) };
}

const isAcknowledged = ({ kind }: Sent): boolean => kind === 'acknowledged';

/** It cannot be published, or may not be before one of its key that cannot. */
function mustWaitForAPerson(all: readonly Sent[], n: number): boolean {
  const { key, kind } = all[n]!;
  const isBehind = all.slice(0, n).some((earlier) => earlier.key === key && earlier.kind === 'rejected');
  return kind === 'rejected' || (isBehind && !isAcknowledged(all[n]!));
}

test('done are those before the first that is neither acknowledged nor parked, and no other', () => {
  fc.assert(
    fc.property(fc.array(sent, { maxLength: 12 }), (all) => {
      const { done, parked, acknowledged, messages } = decideOn(all);
      const waits = all.findIndex((each, n) => !isAcknowledged(each) && !mustWaitForAPerson(all, n));
      assert.equal(done, waits < 0 ? all.length : waits);
      assert.deepEqual(
        parked.map(({ index }) => index),
        all.flatMap((_, n) => (n < done && mustWaitForAPerson(all, n) ? [n] : [])),
      );
      assert.deepEqual(
        acknowledged,
        messages.filter((_, n) => isAcknowledged(all[n]!)),
      );
    }),
    { numRuns: 5_000 },
  );
});

test('a reason is given for what is parked, and for what waits', () => {
  fc.assert(
    fc.property(fc.array(sent, { maxLength: 12 }), (all) => {
      const { done, parked, trouble } = decideOn(all);
      for (const { index, reason } of parked) {
        const own = all[index]!.kind === 'rejected';
        assert.match(reason, own ? new RegExp(`of message ${index}$`) : /behind/);
      }
      const waiting = all.findIndex(
        (each, n) => n >= done && ['refused', 'unknown'].includes(String(each.kind)) && !mustWaitForAPerson(all, n),
      );
      if (waiting < 0) assert.equal(trouble, undefined);
      else assert.match((trouble as Error).message, new RegExp(`of message ${waiting}$`));
    }),
    { numRuns: 5_000 },
  );
});
