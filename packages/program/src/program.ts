/**
 * The one convention of every program here: `npm run <name> -- [command] [flags]`; `--help`; each flag
 * also as an environment variable; `--json` for one JSON object a line; SIGTERM or Ctrl-C drains;
 * exit codes that mean something.
 */
import { parseArgs } from 'node:util';

export const EXIT = {
  ok: 0,
  /** It ran, and the answer is no: a check failed, a server broke. */
  failed: 1,
  /** The call itself is wrong: unknown flag, bad value. */
  usage: 2,
  /** This machine is not ready: no Java, port taken, server unreachable. The message says what to do. */
  environment: 3,
} as const;

interface FlagBase {
  help: string;
  /** Only where the variable is not TWICEPROOF_<NAME>. */
  env?: string;
}
export type FlagSpec =
  | (FlagBase & { type: 'string'; default?: string })
  | (FlagBase & { type: 'boolean' })
  | (FlagBase & { type: 'integer' | 'number'; default?: number; min: number; max: number })
  | (FlagBase & { type: 'choice'; choices: readonly string[]; default?: string });
export type FlagSpecs = Readonly<Record<string, FlagSpec>>;

type ValueOf<S extends FlagSpec> = S extends { type: 'boolean' }
  ? boolean
  : S extends { type: 'integer' | 'number' }
    ? number | (S extends { default: number } ? never : undefined)
    : S extends { choices: readonly (infer C)[] }
      ? C | (S extends { default: string } ? never : undefined)
      : string | (S extends { default: string } ? never : undefined);
export type Flags<S extends FlagSpecs> = { [K in keyof S]: ValueOf<S[K]> };

export interface Program<S extends FlagSpecs> {
  name: string;
  summary: string;
  /** The words that may stand before the flags; the first is not a default: one must be given. */
  commands?: Readonly<Record<string, string>>;
  /** For programs that take free words, such as file names: how they are shown in the help. */
  words?: string;
  flags: S;
  /** What is wrong between flags of which each is right by itself. One that is not is missing here. */
  problems?(flags: Partial<Flags<S>>): string[];
  run(context: Context<S>): Promise<number>;
}

export interface Context<S extends FlagSpecs> {
  command: string;
  words: readonly string[];
  flags: Flags<S>;
  output: Output;
  /** Aborted by SIGTERM and SIGINT: finish what is under way, then return. */
  signal: AbortSignal;
}

/** An error whose message is meant for a person and says what to do; shown without a stack. */
export class Refusal extends Error {
  readonly exitCode: number;
  constructor(problem: string, todo: string, exitCode: number = EXIT.environment, options?: { cause?: unknown }) {
    super(`${problem}\n  ${todo}`, options);
    this.name = 'Refusal';
    this.exitCode = exitCode;
  }
}

export interface Output {
  json: boolean;
  /** For people: to stdout, or nowhere under --json. */
  say(text: string): void;
  /** What is going on, for people who wait: to stderr, so that it never mixes with an answer. */
  progress(text: string): void;
  /** For machines: one line of JSON, or nothing without --json. */
  emit(value: object): void;
  /** The first JSON line: the program can serve, at these addresses. */
  ready(addresses: object): void;
}

export function output(json: boolean): Output {
  const emit = (value: object): void => {
    if (json) process.stdout.write(`${JSON.stringify(value)}\n`);
  };
  return {
    json,
    say: (text) => {
      if (!json) process.stdout.write(`${text}\n`);
    },
    progress: (text) => {
      process.stderr.write(`${text}\n`);
    },
    emit,
    ready: (addresses) => emit({ ready: true, ...addresses }),
  };
}

export type Parsed<S extends FlagSpecs> =
  | { kind: 'run'; command: string; words: string[]; flags: Flags<S>; json: boolean }
  | { kind: 'help' }
  | { kind: 'wrong'; problems: string[] };

const common: FlagSpecs = {
  json: { type: 'boolean', help: 'one JSON object a line on stdout' },
  help: { type: 'boolean', help: 'this text' },
};

/** Reports every problem of the call at once, so that nobody corrects them one by one. */
export function parse<S extends FlagSpecs>(
  program: Program<S>,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
): Parsed<S> {
  const specs: FlagSpecs = { ...program.flags, ...common };
  const problems: string[] = [];
  const options = Object.fromEntries(
    Object.entries(specs).map(([name, spec]) => [
      name,
      { type: spec.type === 'boolean' ? ('boolean' as const) : ('string' as const) },
    ]),
  );
  const { tokens } = parseArgs({ args: [...args], options, strict: false, tokens: true });
  const given: Record<string, string | true> = {};
  const words: string[] = [];
  for (const token of tokens) {
    if (token.kind === 'positional') words.push(token.value);
    if (token.kind !== 'option') continue;
    const spec = Object.hasOwn(specs, token.name) ? specs[token.name] : undefined;
    if (!spec) problems.push(`unknown flag ${token.rawName}`);
    else if (spec.type === 'boolean' && token.value !== undefined) problems.push(`--${token.name} takes no value`);
    else if (spec.type !== 'boolean' && token.value === undefined) problems.push(`--${token.name} needs a value`);
    else given[token.name] = token.value ?? true;
  }
  if (given['help']) return { kind: 'help' };

  const values: Record<string, unknown> = {};
  for (const [name, spec] of Object.entries(specs)) {
    const variable = variableOf(name, spec);
    const fromEnv = env[variable];
    const raw = given[name] ?? (fromEnv === '' ? undefined : fromEnv);
    const origin = given[name] === undefined ? variable : `--${name}`;
    const read = readValue(spec, raw);
    if ('problem' in read) problems.push(`${origin} ${read.problem}, not '${String(raw)}'`);
    else values[name] = read.value;
  }
  problems.push(...(program.problems?.(values as Partial<Flags<S>>) ?? []));
  let command = '';
  if (program.commands) {
    command = words.shift() ?? '';
    const known = Object.keys(program.commands).join(', ');
    if (!Object.hasOwn(program.commands, command)) {
      problems.unshift(command ? `unknown command '${command}'; there is ${known}` : `a command is needed: ${known}`);
    }
  }
  if (!program.words && words.length > 0) problems.push(`unexpected '${words.join(' ')}'`);
  if (problems.length > 0) return { kind: 'wrong', problems };
  return { kind: 'run', command, words, flags: values as Flags<S>, json: values['json'] === true };
}

function variableOf(name: string, spec: FlagSpec): string {
  return spec.env ?? `TWICEPROOF_${name.toUpperCase().replaceAll('-', '_')}`;
}

function readValue(spec: FlagSpec, raw: string | true | undefined): { value: unknown } | { problem: string } {
  switch (spec.type) {
    case 'boolean': {
      if (raw === undefined || raw === 'false' || raw === '0') return { value: false };
      return raw === true || raw === 'true' || raw === '1' ? { value: true } : { problem: 'is true or false' };
    }
    case 'integer': {
      if (raw === undefined) return { value: spec.default };
      const value = Number(raw);
      const fits = /^-?\d+$/.test(String(raw)) && value >= spec.min && value <= spec.max;
      return fits ? { value } : { problem: `is a whole number from ${spec.min} to ${spec.max}` };
    }
    case 'number': {
      if (raw === undefined) return { value: spec.default };
      const value = Number(raw);
      // Number() would also take '', '0x1' and '1e3'.
      const fits = /^-?\d*\.?\d+$/.test(String(raw)) && value >= spec.min && value <= spec.max;
      return fits ? { value } : { problem: `is a number from ${spec.min} to ${spec.max}` };
    }
    case 'choice': {
      if (raw === undefined) return { value: spec.default };
      return spec.choices.includes(String(raw)) ? { value: raw } : { problem: `is one of ${spec.choices.join(', ')}` };
    }
    case 'string':
      return { value: raw ?? spec.default };
  }
}

export function helpText<S extends FlagSpecs>(program: Program<S>): string {
  const specs = Object.entries<FlagSpec>({ ...program.flags, ...common });
  const left = ([name, spec]: [string, FlagSpec]): string => {
    if (spec.type === 'boolean') return `--${name}`;
    if (spec.type === 'choice') return `--${name} ${spec.choices.join('|')}`;
    return `--${name} ${spec.type === 'string' ? 'TEXT' : 'N'}`;
  };
  const width = Math.max(...specs.map((entry) => left(entry).length));
  const usage = [program.commands && '<command>', program.words, '[flags]'].filter(Boolean).join(' ');
  const lines = [`npm run ${program.name} -- ${usage}`, '', program.summary, ''];
  for (const [name, help] of Object.entries(program.commands ?? {})) lines.push(`  ${name.padEnd(width)}  ${help}`);
  if (program.commands) lines.push('');
  for (const entry of specs) {
    const [name, spec] = entry;
    const facts = [
      ...(spec.type === 'number' ? [`${spec.min} to ${spec.max}`] : []),
      ...('default' in spec && spec.default !== undefined ? [`default ${spec.default}`] : []),
    ];
    const fallback = facts.length > 0 ? ` (${facts.join(', ')})` : '';
    const variable = name === 'help' ? '' : ` [${variableOf(name, spec)}]`;
    lines.push(`  ${left(entry).padEnd(width)}  ${spec.help}${fallback}${variable}`);
  }
  lines.push(
    '',
    'Exit codes: 0 done, 1 failed, 2 wrong call, 3 the machine is not ready (the message says what to do).',
  );
  return lines.join('\n');
}

/** One Ctrl-C comes twice: the terminal signals the whole process group, and npm passes it on. */
const sameSignalMs = 1_000;

const drainSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** A program that npm has started ends with npm, also when npm is killed and can tell nobody. */
function watchParent(gone: () => void): NodeJS.Timeout | undefined {
  if (!process.env['npm_lifecycle_event']) return undefined;
  const { ppid } = process;
  return setInterval(() => {
    if (process.ppid !== ppid) gone();
  }, 500).unref();
}

const lingerMs = 1_000;

/** Runs the program to its end and sets the exit code. A second signal while it drains ends it at once. */
export async function main<S extends FlagSpecs>(program: Program<S>): Promise<void> {
  const parsed = parse(program, process.argv.slice(2), process.env);
  if (parsed.kind === 'help') {
    process.stdout.write(`${helpText(program)}\n`);
    return;
  }
  if (parsed.kind === 'wrong') {
    for (const problem of parsed.problems) process.stderr.write(`${program.name}: ${problem}\n`);
    process.stderr.write(`See: npm run ${program.name} -- --help\n`);
    process.exitCode = EXIT.usage;
    return;
  }
  const stop = new AbortController();
  let firstSignalAt = 0;
  const onSignal = (signal: NodeJS.Signals): void => {
    if (stop.signal.aborted && Date.now() - firstSignalAt < sameSignalMs) return;
    if (stop.signal.aborted) process.exit(signal === 'SIGINT' ? 130 : 143);
    firstSignalAt = Date.now();
    stop.abort(new Error(signal));
  };
  for (const name of drainSignals) process.on(name, onSignal);
  const watch = watchParent(() => stop.abort(new Error('the parent is gone')));
  const out = output(parsed.json);
  try {
    const { command, words, flags } = parsed;
    process.exitCode = await program.run({ command, words, flags, output: out, signal: stop.signal });
  } catch (error) {
    process.exitCode = error instanceof Refusal ? error.exitCode : EXIT.failed;
    out.emit({ error: error instanceof Error ? error.message : String(error) });
    const text = error instanceof Refusal ? error.message : error instanceof Error ? error.stack : error;
    process.stderr.write(`${program.name}: ${String(text)}\n`);
  } finally {
    clearInterval(watch);
    for (const name of drainSignals) process.off(name, onSignal);
    // What still holds the process is a connection on which nobody answers a farewell.
    setTimeout(() => process.exit(), lingerMs).unref();
  }
}
