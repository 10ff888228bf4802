/** How a command is described, and what it is told: the words and flags of one call. */
import { parseArgs } from 'node:util';

interface Flag {
  /** How its value is shown; none: it is there or not. */
  value?: string;
  help: string;
  /** The variable that stands for it where it is not given. */
  env?: string;
}

const flags = {
  schema: { value: 'NAME', help: "the schema of twiceproof's tables (default twiceproof)", env: 'TWICEPROOF_SCHEMA' },
  shards: {
    value: 'N',
    help: 'for the first migration: into how many shards the outbox is divided (default 1)',
    env: 'TWICEPROOF_SHARDS',
  },
  roles: { help: 'the least-privilege roles and their grants instead' },
  aggregate: { value: 'ID', help: 'only this key' },
  message: { value: 'ID', help: 'only this message' },
  topic: { value: 'NAME', help: 'only this topic' },
  since: { value: 'TIME', help: 'appended at this time or later, for example 2026-03-01T12:00:00Z' },
  payload: { help: 'show payloads too; they may hold personal data' },
  limit: { value: 'N', help: 'so many at most (default 100 where they are shown, else all)' },
  yes: { help: 'do it; without, it only says what it would do' },
  brokers: {
    value: 'LIST',
    help: 'host:port of one or more brokers, with commas between; see operations.md for TLS and passwords',
    env: 'KAFKA_BROKERS',
  },
  name: {
    value: 'TEXT',
    help: "names the outbox in what is published (ce_source): the relay's own",
    env: 'TWICEPROOF_NAME',
  },
  'max-record-bytes': { value: 'N', help: 'as max.message.bytes of the topic (default 1048588)' },
  topics: {
    value: 'LIST',
    help: 'rows are kept for as long as these topics keep records (default: each for as long as its own topic)',
  },
  'retention-hours': { value: 'N', help: 'how long published rows are kept; the brokers are not asked then' },
  'partition-xids': { value: 'N', help: 'how many transaction ids a partition is for (default 10000000)' },
  'max-wait-ms': { value: 'N', help: 'how long writers may have to wait at a time (default 500)' },
  consumer: { value: 'NAME', help: 'only what this consumer holds' },
  kind: { value: 'KIND', help: 'only of this kind: parked, dead, late, future, altered or unreadable' },
  key: { value: 'ID', help: 'only of this key' },
  'older-than-hours': { value: 'N', help: 'only what has been held for so long' },
  after: { value: 'SEQ', help: 'only behind this one: the next page' },
  'wait-ms': { value: 'N', help: 'how long the running consumer may do nothing of it (default 10000)' },
  'timeout-seconds': { value: 'N', help: 'give up after this time (default 60)' },
  json: { help: 'one JSON object on stdout' },
  help: { help: 'this text' },
} as const satisfies Record<string, Flag>;

export type FlagName = keyof typeof flags;

export interface Command {
  summary: string;
  /** Of the word that has to follow the command, if any; `...` at its end: one or more; in brackets: or none. */
  word?: string;
  /** Besides --json and --help. */
  flags: readonly FlagName[];
  /** More about it, for --help. */
  about?: string;
  run(call: Call): Promise<number>;
}

/** The call is wrong: exit code 2, and no stack. */
export class WrongCall extends Error {}

export interface Call {
  /** As it was given; undefined where it was not. */
  schema: string | undefined;
  json: boolean;
  word: string;
  words: readonly string[];
  has(flag: FlagName): boolean;
  text(flag: FlagName): string | undefined;
  required(flag: FlagName): string;
  number(flag: FlagName, bounds: { min: number; max: number; whole?: boolean }): number | undefined;
  /** The answer: the object under --json, else the text. */
  answer(value: object, text: string): void;
  /** For people who wait: to stderr, not before 2 s have passed, and then every 2 s at most. */
  progress(text: string): void;
}

export function parse(args: readonly string[]): { words: string[]; values: Map<FlagName, string | true> } {
  const options = Object.fromEntries(
    Object.entries<Flag>(flags).map(([name, { value }]) => [
      name,
      { type: value === undefined ? ('boolean' as const) : ('string' as const) },
    ]),
  );
  try {
    const { values, positionals } = parseArgs({ args: [...args], options, allowPositionals: true });
    return { words: positionals, values: new Map(Object.entries(values) as [FlagName, string | true][]) };
  } catch (error) {
    throw new WrongCall((error as Error).message);
  }
}

export function createCall(
  command: Command,
  words: readonly string[],
  given: ReadonlyMap<FlagName, string | true>,
): Call {
  const allowed = [...command.flags, 'json', 'help'];
  const unknown = [...given.keys()].filter((name) => !allowed.includes(name));
  if (unknown.length > 0) throw new WrongCall(`this command takes no --${unknown.join(', no --')}`);
  const [word = '', ...more] = command.word === undefined ? ['', ...words] : words;
  if (more.length > 0 && !command.word?.includes('...')) throw new WrongCall(`unexpected '${more.join(' ')}'`);
  if (command.word !== undefined && !command.word.startsWith('[') && !word)
    throw new WrongCall(`${command.word} is needed`);
  const began = performance.now();
  let spokeAt = began;

  function text(flag: FlagName): string | undefined {
    const value = given.get(flag);
    const { env }: Flag = flags[flag];
    // A variable that is empty is as good as none; a flag that is empty is a mistake.
    return typeof value === 'string' ? value : (env && process.env[env]) || undefined;
  }

  const json = given.has('json');
  return {
    schema: text('schema'),
    json,
    word,
    words: word ? [word, ...more] : [],
    has: (flag) => given.has(flag),
    text,
    required(flag) {
      const value = text(flag);
      const { env }: Flag = flags[flag];
      if (!value) throw new WrongCall(`--${flag} is needed${env ? `, or ${env}` : ''}`);
      return value;
    },
    number: (flag, bounds) => toNumber(`--${flag}`, text(flag), bounds),
    answer: (value, shown) => console.log(json ? JSON.stringify(value) : shown),
    progress(line) {
      const now = performance.now();
      if (now - spokeAt < 2_000) return;
      spokeAt = now;
      console.error(line);
    },
  };
}

export function toNumber(
  name: string,
  raw: string | undefined,
  { min, max, whole = true }: { min: number; max: number; whole?: boolean },
): number | undefined {
  if (raw === undefined) return undefined;
  if (!(whole ? /^\d+$/ : /^\d+(\.\d+)?$/).test(raw)) {
    throw new WrongCall(`${name} is a ${whole ? 'whole ' : ''}number, not '${raw}'`);
  }
  const value = Number(raw);
  if (value < min || value > max) throw new WrongCall(`${name} is from ${min} to ${max}, not ${raw}`);
  return value;
}

export function commandHelp(name: string, { summary, word, flags: its, about }: Command): string {
  const names: FlagName[] = [...its, 'json', 'help'];
  const shown = names.map((flag) => ({
    left: `--${flag} ${(flags[flag] as Flag).value ?? ''}`.trim(),
    ...(flags[flag] as Flag),
  }));
  const width = Math.max(...shown.map(({ left }) => left.length));
  return [
    `twiceproof ${name}${word === undefined ? '' : ` ${word}`} [flags]`,
    '',
    summary,
    ...(about === undefined ? [] : ['', about]),
    '',
    ...shown.map(({ left, help, env }) => `  ${left.padEnd(width)}  ${help}${env ? ` [${env}]` : ''}`),
    '',
    exitCodes,
  ].join('\n');
}

export const exitCodes = 'Exit codes: 0 done, 1 failed, 2 wrong call, 3 the database cannot be reached.';
