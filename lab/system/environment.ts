/** What children are told: not our own flags, which may have come as variables that theirs would be read from too. */
import { join } from 'node:path';

export const root = join(import.meta.dirname, '../..');

/** Where servers and their state are kept is the same for all. */
const kept = ['TWICEPROOF_STATE_DIR', 'TWICEPROOF_CACHE_DIR'];

/** Laid over our own environment: undefined takes a variable away. */
export function childEnvironment(): NodeJS.ProcessEnv {
  const ours = Object.keys(process.env).filter((name) => name.startsWith('TWICEPROOF_') && !kept.includes(name));
  return Object.fromEntries(ours.map((name) => [name, undefined]));
}
