/** Every `ok` answer to a key must be the same, bit by bit. Kept for the hot set only: no other key comes twice. */
import { digestText, type Digest } from './digest.ts';

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
  check(keyNumber: number, digest: Digest, describe: () => { key: string; answer: string }): void;
}

const maxSamples = 10;

export function createAnswers(hotKeys: number): Answers {
  // 9 bytes a key, and the kernel gives only the pages that are touched.
  const known = new Uint8Array(hotKeys);
  const hashes = new Uint32Array(2 * hotKeys);
  const answers: Answers = {
    compared: 0,
    different: 0,
    samples: [],
    check(keyNumber, digest, describe) {
      if (keyNumber >= hotKeys) return;
      const a = hashes[2 * keyNumber]!;
      const b = hashes[2 * keyNumber + 1]!;
      if (known[keyNumber] === 0) {
        known[keyNumber] = 1;
        hashes[2 * keyNumber] = digest.a;
        hashes[2 * keyNumber + 1] = digest.b;
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
