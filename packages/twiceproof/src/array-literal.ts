/**
 * A list as Postgres writes it, for a parameter that is an array. The client would make the same of it, at twice the cost,
 * which is felt where twenty columns of each batch are sent so. A list that holds anything but texts, numbers, bytes and
 * nulls is left to the client.
 */
export function arrayLiteral(values: readonly unknown[]): unknown {
  // `unnest` fills up a list that is shorter than the others with nulls.
  if (values.every((value) => value === null)) return '{}';
  let text = '';
  for (const value of values) {
    const element = elementOf(value);
    if (element === undefined) return values;
    text += text === '' ? element : `,${element}`;
  }
  return `{${text}}`;
}

function elementOf(value: unknown): string | undefined {
  if (typeof value === 'string') return `"${needsEscape.test(value) ? value.replaceAll(/["\\]/g, '\\$&') : value}"`;
  if (typeof value === 'number') return String(value);
  if (value === null) return 'NULL';
  if (!(value instanceof Uint8Array)) return undefined;
  return `"\\\\x${Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('hex')}"`;
}

const needsEscape = /["\\]/;
