/** What the body of an answer names, without parsing it: a judge wants three fields of each, and JSON.parse makes objects. */

const orderField = Buffer.from('"order_id":"', 'latin1');
const statusField = Buffer.from('"status":"', 'latin1');
const versionField = Buffer.from('"version":', 'latin1');
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const uuidLength = 36;
const longestStatus = 32;
const word = /^[a-z_]+$/;

/** Whatever else an answer calls an order does not go into the ledger. */
export function isUuid(text: string): boolean {
  return uuid.test(text);
}

export function orderIdIn(bytes: Buffer, from: number, to: number): string | undefined {
  const at = bytes.indexOf(orderField, from);
  const idAt = at + orderField.length;
  if (at < 0 || idAt + uuidLength > to) return undefined;
  const id = bytes.toString('latin1', idAt, idAt + uuidLength);
  return isUuid(id) ? id : undefined;
}

/** Whatever else an answer calls a state does not go into the ledger. */
export function isWord(text: string): boolean {
  return text.length <= longestStatus && word.test(text);
}

export function statusIn(bytes: Buffer, from: number, to: number): string | undefined {
  const at = bytes.indexOf(statusField, from);
  if (at < 0) return undefined;
  const wordAt = at + statusField.length;
  const end = bytes.indexOf(0x22, wordAt);
  if (end < 0 || end > to || end - wordAt > longestStatus) return undefined;
  const text = bytes.toString('latin1', wordAt, end);
  return isWord(text) ? text : undefined;
}

export function versionIn(bytes: Buffer, from: number, to: number): number | undefined {
  const at = bytes.indexOf(versionField, from);
  if (at < 0) return undefined;
  let version = 0;
  let digits = 0;
  for (let digitAt = at + versionField.length; digitAt < to && digits < 10; digitAt++, digits++) {
    const digit = bytes[digitAt]! - 48;
    if (digit < 0 || digit > 9) break;
    version = version * 10 + digit;
  }
  return digits === 0 ? undefined : version;
}
