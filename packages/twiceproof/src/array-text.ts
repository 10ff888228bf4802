/**
 * A list as Postgres reads an array, or undefined where it has an element whose text we do not know. The client would
 * write the same by itself, element by element in growing strings, which cost more garbage than anything else in a batch.
 */
export function arrayText(list: readonly unknown[]): string | undefined {
  const parts: string[] = [];
  for (const element of list) {
    const text = elementText(element);
    if (text === undefined) return undefined;
    parts.push(text);
  }
  return `{${parts.join(',')}}`;
}

function elementText(element: unknown): string | undefined {
  switch (typeof element) {
    case 'string':
      return needsEscape.test(element) ? `"${element.replaceAll(/["\\]/g, '\\$&')}"` : `"${element}"`;
    case 'number':
    case 'bigint':
    case 'boolean':
      return String(element);
    default:
      if (element === null || element === undefined) return 'NULL';
      return element instanceof Buffer ? `"\\\\x${element.toString('hex')}"` : undefined;
  }
}

const needsEscape = /["\\]/;
