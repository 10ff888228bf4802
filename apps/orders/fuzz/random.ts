/** Seeded, so that a run can be repeated: TWICEPROOF_SEED=... */
export interface Random {
  /** From 0 to below, not including it. */
  int(below: number): number;
  chance(probability: number): boolean;
  pick<T>(from: readonly T[]): T;
  /** A text of `length` characters of `alphabet`. */
  text(alphabet: string, length: number): string;
}

/** mulberry32 */
export function randomFrom(seed: number): Random {
  let state = seed | 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const int = (below: number): number => Math.floor(next() * below);
  return {
    int,
    chance: (probability) => next() < probability,
    pick: (from) => from[int(from.length)]!,
    text: (alphabet, length) => {
      let text = '';
      for (let n = 0; n < length; n += 1) text += alphabet[int(alphabet.length)]!;
      return text;
    },
  };
}

export function seedOf(env = process.env['TWICEPROOF_SEED']): number {
  return env ? Number(env) : Math.floor(Math.random() * 2 ** 31);
}
