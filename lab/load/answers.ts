/**
 * Every `ok` answer to a key must be the same at each door, bit by bit. Kept for the hot set only: no other key
 * comes twice.
 */
import { digestText, type Digest } from './digest.ts';
import type { DoorKind } from './line.ts';

export interface Difference {
  keyNumber: number;
  key: string;
  first: string;
  now: string;
  /** The beginning of the answer that differs. */
  answer: string;
}

export interface Answers {
  /** Second and later answers that were compared with the first. */
  compared: number;
  different: number;
  /** A few of them. */
  samples: Difference[];
  /** Whether a key of the hot set has an `ok` answer. */
  has(keyNumber: number): boolean;
  check(keyNumber: number, door: DoorKind, digest: Digest, describe: () => { key: string; answer: string }): void;
}

const maxSamples = 10;

export function createAnswers(hotKeys: number): Answers {
  // 18 bytes a key, and the kernel gives only the pages that are touched. First those of HTTP, then those of gRPC.
  const known = new Uint8Array(2 * hotKeys);
  const hashes = new Uint32Array(4 * hotKeys);
  const answers: Answers = {
    compared: 0,
    different: 0,
    samples: [],
    has: (keyNumber) => keyNumber < hotKeys && known[keyNumber]! + known[hotKeys + keyNumber]! > 0,
    check(keyNumber, door, digest, describe) {
      if (keyNumber >= hotKeys) return;
      const at = door === 'http' ? keyNumber : hotKeys + keyNumber;
      const a = hashes[2 * at]!;
      const b = hashes[2 * at + 1]!;
      if (known[at] === 0) {
        known[at] = 1;
        hashes[2 * at] = digest.a;
        hashes[2 * at + 1] = digest.b;
        return;
      }
      answers.compared++;
      if (a === digest.a && b === digest.b) return;
      answers.different++;
      if (answers.samples.length >= maxSamples) return;
      answers.samples.push({ keyNumber, first: digestText({ a, b }), now: digestText(digest), ...describe() });
    },
  };
  return answers;
}
