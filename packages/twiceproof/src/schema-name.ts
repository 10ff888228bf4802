import { TwiceproofError } from './errors.ts';

export const defaultSchema = 'twiceproof';

/** `pg_` and `information_schema` are Postgres' own. */
const allowed = /^(?!pg_|information_schema$)[a-z_][a-z0-9_]{0,62}$/;

/**
 * The schema's name, ready to stand in SQL. Names come from configuration, so they are both checked and
 * quoted; Postgres would cut one of more than 63 bytes without a word, and then it is another schema.
 */
export function quotedSchema(name: string = defaultSchema): string {
  // Whatever is no text could be another text each time that it is asked.
  if (typeof name !== 'string' || !allowed.test(name)) {
    const shown = typeof name === 'string' ? JSON.stringify(name.slice(0, 100)) : typeof name;
    throw new TwiceproofError('TP_SCHEMA_NAME', `${shown} is no name for a schema`);
  }
  return `"${name}"`;
}
