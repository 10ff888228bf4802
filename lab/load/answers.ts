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
  const tables: Partial<Record<DoorKind, Table>> = {};
  const answers: Answers = {
    compared: 0,
    different: 0,
    samples: [],
    has: (keyNumber) => tables.http?.known[keyNumber] === 1 || tables.grpc?.known[keyNumber] === 1,
    check(keyNumber, door, digest, describe) {
      if (keyNumber >= hotKeys) return;
      const { known, hashes } = (tables[door] ??= createTable(hotKeys));
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

interface Table {
  known: Uint8Array;
  hashes: Uint32Array;
}

/** 9 bytes a key, and the kernel gives only the pages that are touched. */
function createTable(hotKeys: number): Table {
  return { known: new Uint8Array(hotKeys), hashes: new Uint32Array(2 * hotKeys) };
}
