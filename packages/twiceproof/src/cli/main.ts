#!/usr/bin/env node
/** `npx twiceproof`: commands for operators. */
import { parseArgs } from 'node:util';
import { TwiceproofError } from '../errors.ts';
import { migrate, migrations } from '../migrations/migrate.ts';
import { rolesSql } from './roles.ts';

const help = `twiceproof <command> [flags]

  migrate          apply the migrations that are missing, to the database in DATABASE_URL
  sql              print the migrations, for people who use another migration tool
  sql --roles      print the least-privilege roles and their grants

  --schema NAME    the schema of twiceproof's tables (default twiceproof) [TWICEPROOF_SCHEMA]
  --shards N       for the first migration: into how many shards the outbox is divided (default 1) [TWICEPROOF_SHARDS]
  --json           one JSON object on stdout
  --help

Exit codes: 0 done, 1 failed, 2 wrong call, 3 the database cannot be reached.`;

const options = {
  schema: { type: 'string' },
  shards: { type: 'string' },
  roles: { type: 'boolean' },
  json: { type: 'boolean' },
  help: { type: 'boolean' },
} as const;

process.exitCode = await main();

async function main(): Promise<number> {
  let call: ReturnType<typeof parse>;
  try {
    call = parse();
  } catch (error) {
    return wrong((error as Error).message);
  }
  const { command, schema, shards, roles, json } = call;
  if (call.help) return print(help);
  try {
    if (command === 'sql' && roles) return print(rolesSql(schema));
    if (command === 'sql')
      return print(
        migrations(schema)
          .map(({ name, sql }) => `-- ${name}\n${sql}`)
          .join('\n'),
      );
    if (command === 'migrate') return await migrateNow(schema, shards, json);
  } catch (error) {
    if (error instanceof TwiceproofError) return wrong(`${error.message}\n  ${error.todo}`);
    throw error;
  }
  return wrong(command ? `there is no command '${command}'` : 'a command is needed: migrate, sql');
}

function parse() {
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  const [command = '', ...more] = positionals;
  if (more.length > 0) throw new Error(`unexpected '${more.join(' ')}'`);
  const env = process.env;
  // A variable that is empty is as good as none; a flag that is empty is a mistake.
  const schema = values.schema ?? (env['TWICEPROOF_SCHEMA'] || undefined);
  const shards = values.shards ?? (env['TWICEPROOF_SHARDS'] || undefined);
  if (shards !== undefined && !/^\d+$/.test(shards)) throw new Error(`--shards is a whole number, not '${shards}'`);
  return { ...values, command, schema, shards: shards === undefined ? undefined : Number(shards) };
}

async function migrateNow(schema?: string, shards?: number, json?: boolean): Promise<number> {
  const url = process.env['DATABASE_URL'];
  if (!url) return wrong('DATABASE_URL is not set: postgres://user:password@host:port/database');
  // Only here, since the other commands need no client.
  const { default: pg } = await import('pg');
  const pool = new pg.Pool({ connectionString: url, max: 1, connectionTimeoutMillis: 10_000 });
  try {
    const applied = await migrate(pool, {
      ...(schema !== undefined && { schema }),
      ...(shards !== undefined && { shards }),
    });
    const text = applied.length === 0 ? 'Nothing to do: all migrations are applied.' : `Applied: ${applied.join(', ')}`;
    return print(json ? JSON.stringify({ applied }) : text);
  } catch (error) {
    if (error instanceof TwiceproofError) throw error;
    const { message, code } = error as NodeJS.ErrnoException;
    console.error(`twiceproof: the migration failed: ${message || code}`);
    return /^(ECONN|ENOTFOUND|ETIMEDOUT|08|28|3D)/.test(code ?? '') ? 3 : 1;
  } finally {
    await pool.end();
  }
}

function print(text: string): number {
  console.log(text);
  return 0;
}

function wrong(problem: string): number {
  console.error(`twiceproof: ${problem}\nSee: twiceproof --help`);
  return 2;
}
