#!/usr/bin/env node
/** `npx twiceproof`: commands for operators. */
import { TwiceproofError } from '../errors.ts';
import { quotedSchema } from '../schema-name.ts';
import { commandHelp, createCall, exitCodes, parse, WrongCall, type Command } from './call.ts';
import { heldCommands } from './held.ts';
import { migrateCommand, sqlCommand } from './migrate.ts';
import { outboxCommands } from './outbox.ts';

/** Commands of two words, by the first of them. */
const groups: Readonly<Record<string, Readonly<Record<string, Command>>>> = {
  outbox: outboxCommands,
  held: heldCommands,
};

/** By the words that name them. */
const commands: Readonly<Record<string, Command>> = {
  migrate: migrateCommand,
  sql: sqlCommand,
  ...Object.fromEntries(
    Object.entries(groups).flatMap(([group, those]) =>
      Object.entries(those).map(([name, command]) => [`${group} ${name}`, command]),
    ),
  ),
};

process.exitCode = await main(process.argv.slice(2));

async function main(args: readonly string[]): Promise<number> {
  try {
    const { words, values } = parse(args);
    const name = [words.slice(0, 2).join(' '), words[0] ?? ''].find((found) => Object.hasOwn(commands, found));
    if (values.has('help')) return print(name === undefined ? overview() : commandHelp(name, commands[name]!));
    if (name === undefined) throw new WrongCall(unknownCommand(words));
    const call = createCall(commands[name]!, words.slice(name.split(' ').length), values);
    // Before anybody looks for the database.
    quotedSchema(call.schema);
    return await commands[name]!.run(call);
  } catch (error) {
    if (error instanceof WrongCall) return fail(`${error.message}\nSee: twiceproof --help`, 2);
    if (!(error instanceof TwiceproofError)) throw error;
    const isOfCall = error.code === 'TP_OPTION' || error.code === 'TP_SCHEMA_NAME';
    return fail(`${error.message}\n  ${error.todo}`, isOfCall ? 2 : 1);
  }
}

function unknownCommand([first = '', second = '']: readonly string[]): string {
  const group = Object.hasOwn(groups, first) ? groups[first] : undefined;
  const known = Object.keys(group ?? { migrate: '', sql: '', ...groups });
  const given = group ? second : first;
  return given ? `there is no command '${given}': ${known.join(', ')}` : `a command is needed: ${known.join(', ')}`;
}

function overview(): string {
  const shown = Object.entries(commands).map(([name, { word, summary }]) => ({
    left: [name, word].join(' '),
    summary,
  }));
  const width = Math.max(...shown.map(({ left }) => left.length));
  return [
    'twiceproof <command> [flags]',
    '',
    ...shown.map(({ left, summary }) => `  ${left.padEnd(width)}  ${summary}`),
    '',
    'All of them take --schema, --json and --help, and work on the database in DATABASE_URL.',
    '`twiceproof <command> --help` says more about one.',
    '',
    exitCodes,
  ].join('\n');
}

function print(text: string): number {
  console.log(text);
  return 0;
}

function fail(problem: string, code: number): number {
  console.error(`twiceproof: ${problem}`);
  return code;
}
