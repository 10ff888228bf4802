/** Seeded randomness, 32 bits at a time: cheap in JavaScript, and the same on every machine. */

/** A bijection of 32-bit numbers that scatters its input (Wellons' lowbias32). */
export function scatter(value: number): number {
  let x = value ^ (value >>> 16);
  x = Math.imul(x, 0x7feb352d);
  x ^= x >>> 15;
  x = Math.imul(x, 0x846ca68b);
  return (x ^ (x >>> 16)) >>> 0;
}

/** Numbers from 0 up to, not including, 1 (sfc32). */
export function randomFrom(seed: number): () => number {
  let a = scatter(seed);
  let b = scatter(a ^ 0x9e3779b9);
  let c = scatter(b ^ 0x85ebca6b);
  let counter = 1;
  return () => {
    const sum = (a + b + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + sum) | 0;
    return (sum >>> 0) / 2 ** 32;
  };
}

/**
 * Ranks from 0 to size - 1, where rank k has a probability proportional to (k + 1)^-s. By
 * rejection-inversion (Hörmann and Derflinger, 1996): no table, so a set of a million costs nothing, and
 * fewer than 1.2 draws each.
 */
export function zipfFrom(random: () => number, size: number, s: number): () => number {
  // The integral of x^-s and its inverse; written so that s = 1 is no special case.
  const integral = (x: number): number => expm1Ratio((1 - s) * Math.log(x)) * Math.log(x);
  const inverse = (x: number): number => {
    const t = Math.max(-1, x * (1 - s));
    return Math.exp(log1pRatio(t) * x);
  };
  const weight = (x: number): number => Math.exp(-s * Math.log(x));
  const low = integral(1.5) - 1;
  const high = integral(size + 0.5);
  const shortcut = 2 - inverse(integral(2.5) - weight(2));
  return () => {
    for (;;) {
      const u = high + random() * (low - high);
      const x = inverse(u);
      const k = Math.min(size, Math.max(1, Math.round(x)));
      if (k - x <= shortcut || u >= integral(k + 0.5) - weight(k)) return k - 1;
    }
  };
}

/** (e^x - 1) / x */
function expm1Ratio(x: number): number {
  return Math.abs(x) > 1e-8 ? Math.expm1(x) / x : 1 + x / 2;
}

/** ln(1 + x) / x */
function log1pRatio(x: number): number {
  return Math.abs(x) > 1e-8 ? Math.log1p(x) / x : 1 - x / 2;
}
