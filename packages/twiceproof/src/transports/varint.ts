/** Whole numbers from 0 as Kafka's records have them: doubled (a sign would stand in the lowest bit), seven bits a byte. */
export function writeVarint(to: Uint8Array, from: number, value: number): number {
  let at = from;
  let rest = value * 2;
  while (rest > 0x7f) {
    to[at] = (rest & 0x7f) | 0x80;
    rest >>>= 7;
    at += 1;
  }
  to[at] = rest;
  return at + 1;
}

export function varintBytes(value: number): number {
  let bytes = 1;
  for (let rest = value * 2; rest > 0x7f; rest >>>= 7) bytes += 1;
  return bytes;
}
