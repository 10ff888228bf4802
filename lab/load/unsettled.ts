/** Keys of which nobody knows whether they were carried out: an attempt has an unknown outcome, and none a definite one. */
import type { Answers } from './answers.ts';
import type { Send } from './plan.ts';

export interface Unsettled {
  size(): number;
  has(send: Send): boolean;
  /** Takes notice of an outcome; `nothing` says nothing of other attempts. */
  note(send: Send, outcome: 'definite' | 'nothing' | 'unknown'): void;
  sends(): Iterable<Send>;
}

/** 150 bytes each. What is beyond is counted, and not asked again. */
const maxKept = 1_000_000;

export function createUnsettled(answers: Pick<Answers, 'has'>): Unsettled {
  const open = new Map<number, Send>();
  let beyond = 0;
  return {
    size: () => open.size + beyond,
    has: ({ keyNumber }) => open.has(keyNumber),
    note(send, outcome) {
      const { keyNumber } = send;
      if (outcome === 'unknown') {
        if (answers.has(keyNumber)) return;
        if (open.size < maxKept || open.has(keyNumber)) open.set(keyNumber, send);
        else beyond++;
      } else if (open.size > 0 && outcome === 'definite') open.delete(keyNumber);
    },
    sends: () => open.values(),
  };
}
