import { TwiceproofError } from './errors.ts';

export const defaultSchema = 'twiceproof';

/**
 * The schema's name, ready to stand in SQL. Names come from configuration, so they are both checked and
 * quoted; Postgres would cut one of more than 63 bytes without a word, and then it is another schema.
 */
export function quotedSchema(name: string = defaultSchema): string {
  if (!/^[a-z_][a-z0-9_]{0,62}$/.test(name)) {
    throw new TwiceproofError('TP_SCHEMA_NAME', `'${name}' is no name for a schema`);
  }
  return `"${name}"`;
}
