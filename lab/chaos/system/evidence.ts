/** What is kept of a run that failed: what everybody printed, and the tables. */
import { cpSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { Run } from '@twiceproof/infra/run';
import pg from 'pg';
import type { System } from '../../system/system.ts';

/** Before the run ends, which removes its directory. */
export function keepLogs(run: Run, to: string): void {
  mkdirSync(to, { recursive: true });
  for (const path of readdirSync(run.directory, { recursive: true, encoding: 'utf8' })) {
    const from = join(run.directory, path);
    // Kafka calls its data so too.
    const isData = /^\d+\.log$/.test(basename(path));
    if (path.endsWith('.log') && !isData && statSync(from).isFile()) cpSync(from, join(to, path.replaceAll('/', '-')));
  }
}

/** Every table of both databases that has rows, as CSV with a header. Partitions are tables too. */
export async function dumpTables({ databases, postgres }: System, to: string): Promise<void> {
  mkdirSync(to, { recursive: true });
  for (const [name, url] of Object.entries(databases)) {
    const client = new pg.Client(url as string);
    await client.connect();
    try {
      const { rows } = await client.query<{ name: string }>(
        `SELECT format('%I.%I', n.nspname, c.relname) AS name FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
         WHERE relkind = 'r' AND nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1`,
      );
      for (const table of rows) await dumpTable(client, table.name, join(to, `${name}-${table.name}.csv`));
    } finally {
      await client.end();
    }
  }

  /** The server writes it where it may write, and we take it from there: that is fast, and needs no protocol. */
  async function dumpTable(client: pg.Client, table: string, file: string): Promise<void> {
    const written = join(postgres.directory, 'data', basename(file));
    const { rowCount } = await client.query(`COPY ${table} TO '${written.replaceAll("'", "''")}' (FORMAT csv, HEADER)`);
    // Not renamed: it may have to go to another file system.
    if (rowCount) cpSync(written, file);
    rmSync(written);
  }
}
