/** A file by which people point the judge at tables of their own. */
import { readFile } from 'node:fs/promises';
import pg from 'pg';
import { columns, type SetName, type Sets } from './sets.ts';

export interface Config {
  /** A text is a SELECT that gives the columns of the set; null leaves the set out, and what is judged by it. */
  sets: Partial<Record<SetName, string | null>>;
  /** The header of a record that holds the message's id. Defaults to `ce_id`. */
  idHeader: string;
  /** Who must have an effect of every message, where there are several: one that has none at all is not seen otherwise. */
  consumers: readonly string[];
}

export const noConfig: Config = { sets: {}, idHeader: 'ce_id', consumers: [] };

/** Without these there is nothing to compare. */
const needed: readonly SetName[] = ['orders', 'outbox', 'effects'];

/** Answers every problem at once. */
export async function readConfig(path: string): Promise<Config | { problems: string[] }> {
  try {
    return configOf(JSON.parse(await readFile(path, 'utf8')));
  } catch (cause) {
    return { problems: [`${path} cannot be read: ${cause instanceof Error ? cause.message : String(cause)}`] };
  }
}

export function configOf(value: unknown): Config | { problems: string[] } {
  if (!isRecord(value)) return { problems: ['it is not a JSON object'] };
  const { idHeader = noConfig.idHeader, consumers = noConfig.consumers, ...given } = value;
  const problems: string[] = [];
  if (typeof idHeader !== 'string') problems.push('idHeader is the name of a header');
  if (!isTexts(consumers)) problems.push('consumers is a list of names');
  const sets: Config['sets'] = {};
  for (const [name, spec] of Object.entries(given)) {
    if (!isSetName(name))
      problems.push(`unknown set ${name}; there is ${Object.keys(columns).filter(isSetName).join(', ')}`);
    else if (spec === null && needed.includes(name)) problems.push(`${name} cannot be left out`);
    else if (spec === null) sets[name] = null;
    else {
      const select = selectOf(name, spec);
      if ('problem' in select) problems.push(select.problem);
      else sets[name] = select.text;
    }
  }
  if (problems.length > 0) return { problems };
  return { sets, idHeader: idHeader as string, consumers: consumers as readonly string[] };
}

/**
 * What is read: ours, where the file says nothing else. The floor of our inbox says nothing of another's; and whoever has
 * other effects has other states, or none.
 */
export function mergeSets(own: Sets, { sets }: Config): Sets {
  const floor = sets.inbox === undefined ? {} : { floor: null };
  const states = sets.effects === undefined ? {} : { states: null };
  const merged = Object.entries({ ...own, ...floor, ...states, ...sets });
  return Object.fromEntries(merged.filter(([, select]) => select !== null));
}

function selectOf(name: SetName, spec: unknown): { text: string } | { problem: string } {
  if (typeof spec === 'string') {
    return /^\s*(select|with)\s/i.test(spec) ? { text: spec } : { problem: `${name}: a text is a SELECT` };
  }
  if (!isRecord(spec) || typeof spec['table'] !== 'string' || !isRecord(spec['columns'])) {
    return { problem: `${name} is a SELECT, or { "table": ..., "columns": { ... } }, or null` };
  }
  const { table, columns: theirs } = spec as { table: string; columns: Record<string, unknown> };
  const unknown = Object.keys(theirs).filter((column) => !(column in columns[name]));
  if (unknown.length > 0) {
    return {
      problem: `${name} has no column ${unknown.join(', ')}; there is ${Object.keys(columns[name]).join(', ')}`,
    };
  }
  const wrong = Object.values(theirs).some((source) => typeof source !== 'string');
  if (wrong) return { problem: `${name}: each column is named by a text` };
  const selected = Object.entries(theirs as Record<string, string>).map(
    ([column, source]) => `${pg.escapeIdentifier(source)} AS ${column}`,
  );
  return { text: `SELECT ${selected.join(', ')} FROM ${table.split('.').map(pg.escapeIdentifier).join('.')}` };
}

function isSetName(name: string): name is SetName {
  return Object.hasOwn(columns, name) && name !== 'floor';
}

function isTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every((each) => typeof each === 'string');
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
