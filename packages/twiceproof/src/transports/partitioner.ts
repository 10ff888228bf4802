/**
 * Which partition a key goes to: murmur2 as the Java client has it, so that producers in other
 * languages put a key where we put it. Integer arithmetic, because the client's own version works
 * in BigInt without ever cutting its state back to 32 bits (partitioner.test.ts has the vectors).
 */
export function partitionFor(key: Uint8Array, partitions: number): number {
  return (murmur2(key) & 0x7fffffff) % partitions;
}

const m = 0x5bd1e995;
const seed = 0x9747b28c;

/** The signed 32-bit hash of `org.apache.kafka.common.utils.Utils.murmur2`. */
export function murmur2(data: Uint8Array): number {
  const { length } = data;
  const view = new DataView(data.buffer, data.byteOffset, length);
  let h = seed ^ length;
  let at = 0;
  for (; at + 4 <= length; at += 4) {
    let k = Math.imul(view.getInt32(at, true), m);
    k = Math.imul(k ^ (k >>> 24), m);
    h = Math.imul(h, m) ^ k;
  }
  if (at < length) {
    for (let shift = 0; at < length; at += 1, shift += 8) h ^= view.getUint8(at) << shift;
    h = Math.imul(h, m);
  }
  h = Math.imul(h ^ (h >>> 13), m);
  return h ^ (h >>> 15);
}
