import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { startPostgres, tryConnect } from '@twiceproof/infra/postgres';
import pg from 'pg';
import { transaction, type Pool } from './transaction.ts';

// Nothing but a commit brings the log to disk, so that a crash finds ids that are not there.
const server = await startPostgres({ settings: { wal_writer_delay: '10s' } });
const pool = new pg.Pool({ connectionString: server.url });
pool.on('error', () => {});
after(async () => {
  await pool.end();
  await server.close();
});
await pool.query('CREATE TABLE facts (fact text PRIMARY KEY)');
beforeEach(async () => pool.query('TRUNCATE facts'));

async function facts(): Promise<string[]> {
  return (await pool.query<{ fact: string }>('SELECT fact FROM facts')).rows.map(({ fact }) => fact);
}

const crashes: Record<string, () => Promise<void>> = {
  'the server is killed and started again': async () => {
    await server.kill();
    await server.start();
  },
  'one of its processes is killed, and the others recover': async () => {
    const [victim, witness] = [new pg.Client(server.url), new pg.Client(server.url)];
    for (const client of [victim, witness]) {
      client.on('error', () => {});
      await client.connect();
    }
    const ended = new Promise((resolve) => witness.once('end', resolve));
    const { rows } = await victim.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    process.kill(rows[0]!.pid, 'SIGKILL');
    await ended;
    while (await tryConnect(server.url));
  },
};

/** The first COMMIT never arrives: `meanwhile` happens instead, and then the connection is found to be lost. */
function losingCommit(meanwhile: () => Promise<void>): Pool {
  let isFirst = true;
  return {
    connect: async () => {
      const client = await pool.connect();
      if (!isFirst) return client;
      isFirst = false;
      const query = client.query.bind(client) as (text: string, values?: unknown[]) => Promise<pg.QueryResult>;
      const lossy = async (text: string, values?: unknown[]): Promise<pg.QueryResult> => {
        if (text !== 'COMMIT') return query(text, values);
        await meanwhile();
        throw new Error('Connection terminated unexpectedly');
      };
      return Object.assign(client, { query: lossy });
    },
  };
}

/** Others commit until the id has been one of theirs. */
async function giveAway(xid: bigint): Promise<void> {
  for (;;) {
    const { rows } = await pool.query<{ xid: string }>('SELECT pg_current_xact_id()::text AS xid');
    assert.ok(BigInt(rows[0]!.xid) <= xid, 'the crash has freed it');
    if (BigInt(rows[0]!.xid) === xid) return;
  }
}

for (const [name, crash] of Object.entries(crashes)) {
  test(`${name}, and another commits under our id: nobody says that we did, and work is not run again`, async () => {
    let xid = 0n;
    let runs = 0;
    const lossy = losingCommit(async () => {
      await crash();
      await giveAway(xid);
    });
    const ours = transaction(lossy, async (tx) => {
      runs += 1;
      const { rows } = await tx.query("INSERT INTO facts VALUES ('ours') RETURNING pg_current_xact_id()::text AS xid");
      xid = BigInt(String(rows[0]?.['xid']));
    });
    await assert.rejects(ours, { code: 'TP_COMMIT_UNKNOWN' });
    assert.equal(runs, 1);
    assert.deepEqual(await facts(), []);
  });

  test(`${name}, and our id is nobody's: it is known to be lost, so work runs again`, async () => {
    let runs = 0;
    await transaction(losingCommit(crash), async (tx) => {
      runs += 1;
      await tx.query("INSERT INTO facts VALUES ('ours')");
    });
    assert.equal(runs, 2);
    assert.deepEqual(await facts(), ['ours']);
  });
}

test(
  'the server gives up waiting for a standby that must have it: nobody says that it is committed',
  { timeout: 60_000 },
  async () => {
    const other = new pg.Client(server.url);
    await other.connect();
    const wait = async (name: string): Promise<void> => {
      await other.query(`ALTER SYSTEM SET synchronous_standby_names = '${name}'`);
      await other.query('SELECT pg_reload_conf()');
    };
    /** Whether somebody was, who need not wait any more then. */
    const wasAwaiting = async (): Promise<boolean> => {
      const { rowCount } = await other.query(
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid <> pg_backend_pid()",
      );
      return Boolean(rowCount);
    };
    await other.query('CREATE TABLE probes (probe int)');
    await wait('nobody');
    try {
      // The server takes up a setting when it gets round to it. A commit before that waits for nobody.
      for (let isEffective = false; !isEffective;) {
        let isOver = false;
        const probe = pool.query('INSERT INTO probes VALUES (1)').finally(() => (isOver = true));
        while (!isOver && !isEffective) isEffective = await wasAwaiting();
        await probe;
      }
      const ours = transaction(pool, async (tx) => {
        await tx.query("INSERT INTO facts VALUES ('ours')");
      });
      ours.catch(() => {});
      while (!(await wasAwaiting()));
      await assert.rejects(ours, { code: 'TP_COMMIT_UNKNOWN' });
    } finally {
      await wait('');
      await other.end();
    }
    assert.deepEqual(await facts(), ['ours']);
  },
);
