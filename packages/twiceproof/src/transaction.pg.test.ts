import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { transaction, type Pool, type PoolClient } from './transaction.ts';
import type { Tx } from './tx.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
pool.on('error', () => {});
after(async () => pool.end());
await pool.query('CREATE TABLE accounts (id int PRIMARY KEY, n int NOT NULL)');
beforeEach(async () => {
  await pool.query('TRUNCATE accounts');
  await pool.query('INSERT INTO accounts VALUES (1, 0), (2, 0)');
});

async function numbers(): Promise<unknown[]> {
  return (await pool.query<{ n: number }>('SELECT n FROM accounts ORDER BY id')).rows.map(({ n }) => n);
}

const add = 'UPDATE accounts SET n = n + 1 WHERE id = $1';

test('what work answers is answered when it is committed', async () => {
  const answer = await transaction(pool, async (tx) => {
    await tx.query(add, [1]);
    return 'done';
  });
  assert.equal(answer, 'done');
  assert.deepEqual(await numbers(), [1, 0]);
});

test('an error rolls back and is passed on, and the connection is used again', async () => {
  const before = pool.totalCount;
  const failing = transaction(pool, async (tx) => {
    await tx.query(add, [1]);
    throw new Error('no');
  });
  await assert.rejects(failing, /^Error: no$/);
  assert.deepEqual(await numbers(), [0, 0]);
  assert.equal(pool.totalCount, before);
});

test('a COMMIT that was a ROLLBACK is an error', async () => {
  const swallowing = transaction(pool, async (tx) => {
    await tx.query(add, [1]);
    await tx.query('SELECT 1 / 0').catch(() => {});
    return 'all is well';
  });
  await assert.rejects(swallowing, { code: 'TP_COMMIT_WAS_ROLLBACK' });
  assert.deepEqual(await numbers(), [0, 0]);
});

test('a serialization failure runs the whole again, with what is there by then', async () => {
  let attempts = 0;
  const seen = await transaction(
    pool,
    async (tx) => {
      attempts += 1;
      const { rows } = await tx.query('SELECT n FROM accounts WHERE id = 1');
      if (attempts === 1) await pool.query(add, [1]);
      await tx.query(add, [1]);
      return rows[0]?.['n'];
    },
    { isolation: 'REPEATABLE READ' },
  );
  assert.deepEqual([attempts, seen, await numbers()], [2, 1, [2, 0]]);
});

test('a deadlock is resolved by running its victim again', async () => {
  const both: Promise<void>[] = [];
  let inside = 0;
  let meet = (): void => {};
  const met = new Promise<void>((resolve) => (meet = resolve));
  for (const order of [
    [1, 2],
    [2, 1],
  ]) {
    both.push(
      transaction(pool, async (tx) => {
        await tx.query(add, [order[0]]);
        if ((inside += 1) === 2) meet();
        await met;
        await tx.query(add, [order[1]]);
      }),
    );
  }
  await Promise.all(both);
  assert.ok(inside > 2, 'one of them ran twice');
  assert.deepEqual(await numbers(), [2, 2]);
});

test('what cannot pass is not tried again, and what can is not tried for ever', async () => {
  let attempts = 0;
  const failing = (code: string) =>
    transaction(
      pool,
      async () => {
        attempts += 1;
        throw Object.assign(new Error(code), { code });
      },
      { retries: 2 },
    );
  await assert.rejects(failing('23505'), { code: '23505' });
  assert.equal(attempts, 1);
  attempts = 0;
  await assert.rejects(failing('40001'), { code: '40001' });
  assert.equal(attempts, 3);
});

/** A pool whose connections do with COMMIT what a network can do with it. */
function poolThat(
  atCommit: (client: pg.PoolClient, commit: () => Promise<unknown>) => Promise<never>,
  alsoLater = false,
): Pool & { destroyed: number } {
  let connections = 0;
  const lossy = {
    destroyed: 0,
    async connect(): Promise<PoolClient> {
      connections += 1;
      if (connections > 1 && alsoLater) throw new Error('connect ECONNREFUSED');
      const client = await pool.connect();
      const isLossy = connections === 1;
      return {
        query: async (text: string, values?: unknown[]) => {
          if (isLossy && text === 'COMMIT') return atCommit(client, async () => client.query(text));
          return client.query<Record<string, unknown>>(text, values);
        },
        on: (event, listener) => client.on(event, listener),
        off: (event, listener) => client.off(event, listener),
        release: (destroy?: boolean) => {
          if (destroy) lossy.destroyed += 1;
          client.release(destroy);
        },
      };
    },
  };
  return lossy;
}

const lost = (): never => {
  throw new Error('Connection terminated unexpectedly');
};

test('COMMIT done, its answer lost: it counts as committed, work runs once, the connection is destroyed', async () => {
  const lossy = poolThat(async (_, commit) => {
    await commit();
    return lost();
  });
  let attempts = 0;
  await transaction(lossy, async (tx) => {
    attempts += 1;
    await tx.query(add, [1]);
  });
  assert.deepEqual([attempts, await numbers(), lossy.destroyed], [1, [1, 0], 1]);
});

test('the connection ends before COMMIT arrives: known to be rolled back, so work runs again', async () => {
  const lossy = poolThat(async (client) => {
    const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    await pool.query('SELECT pg_terminate_backend($1)', [rows[0]?.pid]);
    return lost();
  });
  let attempts = 0;
  await transaction(lossy, async (tx) => {
    attempts += 1;
    await tx.query(add, [1]);
  });
  assert.deepEqual([attempts, await numbers(), lossy.destroyed], [2, [1, 0], 1]);
});

test('nobody can tell what became of COMMIT: said so, and never run again', async () => {
  const lossy = poolThat(async (_, commit) => {
    await commit();
    return lost();
  }, true);
  let attempts = 0;
  const unknown = transaction(
    lossy,
    async (tx) => {
      attempts += 1;
      await tx.query(add, [1]);
    },
    { outcomeWithinMs: 200 },
  );
  await assert.rejects(unknown, { code: 'TP_COMMIT_UNKNOWN' });
  assert.deepEqual([attempts, await numbers()], [1, [1, 0]]);
});

test('a statement that is not answered in time: no ROLLBACK waits behind it, and the connection is destroyed', async () => {
  const silent = new pg.Pool({ connectionString: url, query_timeout: 300, application_name: 'silent' });
  silent.on('error', () => {});
  const sent: string[] = [];
  let destroyed = 0;
  const watched: Pool = {
    connect: async () => {
      const client = await silent.connect();
      return {
        query: async (text: string, values?: unknown[]) => {
          sent.push(text);
          return client.query<Record<string, unknown>>(text, values);
        },
        release: (destroy?: boolean) => {
          if (destroy) destroyed += 1;
          client.release(destroy);
        },
      };
    },
  };
  await assert.rejects(
    transaction(watched, async (tx) => tx.query('SELECT pg_sleep(1)')),
    /Query read timeout/,
  );
  await silent.end();
  assert.deepEqual([sent.includes('ROLLBACK'), destroyed], [false, 1]);
  // The server notices only when it has slept.
  const backends = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'silent'";
  while ((await pool.query(backends)).rowCount !== 0) await delay(20);
});

test('a connection that is lost in the middle is destroyed, and the error passed on', async () => {
  const failing = transaction(pool, async (tx) => {
    const { rows } = await tx.query('SELECT pg_backend_pid() AS pid');
    await tx.query(add, [1]);
    await pool.query('SELECT pg_terminate_backend($1)', [rows[0]?.['pid']]);
    await tx.query(add, [1]);
  });
  await assert.rejects(failing);
  assert.deepEqual(await numbers(), [0, 0]);
  assert.equal(await transaction(pool, async () => 'fine'), 'fine');
});

test("a handle that is kept is refused, since its connection is somebody else's by then", async () => {
  const kept = await transaction(pool, async (tx) => tx);
  await assert.rejects(kept.query(add, [1]), { code: 'TP_NOT_IN_TRANSACTION' });
  assert.deepEqual(await numbers(), [0, 0]);
});

for (const [end, comesToItsEnd] of [
  ['has failed', false],
  ['is done', true],
] as const) {
  test(`what a part of the work sends when the whole ${end} is refused: it would be committed by itself`, async () => {
    const { promise: last, resolve } = Promise.withResolvers<unknown>();
    const ours = transaction(pool, async (tx) => {
      // It is answered behind the end of the work, and ahead of our COMMIT or ROLLBACK.
      const late = tx.query('SELECT pg_sleep(0.2)').then(async () => tx.query(add, [1]));
      late.then(resolve, resolve);
      if (!comesToItsEnd) throw new Error('no');
    });
    if (comesToItsEnd) await ours;
    else await assert.rejects(ours, /^Error: no$/);
    assert.equal(((await last) as { code?: string }).code, 'TP_NOT_IN_TRANSACTION');
    assert.deepEqual(await numbers(), [0, 0]);
  });
}

test('a statement takes no longer than it may, and where the server allows less, less it stays', async () => {
  const sleeping = transaction(pool, async (tx) => tx.query('SELECT pg_sleep(30)'), { statementWithinMs: 100 });
  await assert.rejects(sleeping, { code: '57014' });
  const show = async (tx: Tx): Promise<unknown> => (await tx.query('SHOW statement_timeout')).rows[0];
  assert.deepEqual(await transaction(pool, show), { statement_timeout: '1min' });
  const strict = new pg.Pool({ connectionString: url, options: '-c statement_timeout=700' });
  try {
    assert.deepEqual(await transaction(strict, show), { statement_timeout: '700ms' });
  } finally {
    await strict.end();
  }
});

test('on a wire that has fallen silent it ends too, and the connection is not used again', async () => {
  for (const silentAt of [/^BEGIN/, /^UPDATE/, /^COMMIT/]) {
    let destroyed = 0;
    const { promise: never } = Promise.withResolvers<never>();
    const silent: Pool = {
      connect: async () => {
        const client = await pool.connect();
        return {
          query: async (text: string, values?: unknown[]) =>
            silentAt.test(text) ? never : client.query<Record<string, unknown>>(text, values),
          release: (destroy?: boolean) => {
            if (destroy) destroyed += 1;
            client.release(true);
          },
        };
      },
    };
    const limits = { statementWithinMs: 100, outcomeWithinMs: 300 };
    const work = async (tx: Tx): Promise<unknown> => tx.query(add, [1]);
    const expected = silentAt.test('COMMIT') ? 'TP_COMMIT_UNKNOWN' : 'ETIMEDOUT';
    // What became of it is known at last, since the connection is gone: then it is done again, as often as it may be.
    const ended = await transaction(silent, work, { ...limits, retries: 1 }).catch((error: unknown) => error);
    assert.ok(['ETIMEDOUT', expected].includes((ended as { code: string }).code), String(ended));
    assert.ok(destroyed > 0);
  }
  assert.deepEqual(await numbers(), [0, 0]);
});

test('a statement that ends the transaction behind another one is noticed at the end', async () => {
  const hidden = transaction(pool, async (tx) => tx.query('SELECT 1; ROLLBACK'));
  await assert.rejects(hidden, { code: 'TP_TRANSACTION_CONTROL' });
});

test('a COMMIT behind another statement is told as what it is: nobody may hear that nothing was done', async () => {
  for (const text of ['SELECT 1; COMMIT', 'SELECT 1; COMMIT; BEGIN', 'SELECT 1; COMMIT AND CHAIN']) {
    const hidden = transaction(pool, async (tx) => {
      await tx.query(add, [1]);
      await tx.query(text).catch(() => {});
      throw new Error('no');
    });
    await assert.rejects(hidden, { code: 'TP_COMMIT_UNKNOWN' }, text);
  }
  assert.deepEqual(await numbers(), [3, 0]);
  for (const text of ['SELECT 1; ROLLBACK; BEGIN', { text: 'COMMIT' } as unknown as string]) {
    const hidden = transaction(pool, async (tx) => {
      await tx.query(add, [1]);
      await tx.query(text).catch(() => {});
    });
    if (typeof text === 'string') await assert.rejects(hidden, { code: 'TP_TRANSACTION_CONTROL' });
    else await hidden;
  }
  assert.deepEqual(await numbers(), [4, 0]);
});

test('nobody inside ends the transaction; savepoints are free', async () => {
  for (const text of [
    'COMMIT',
    ' rollback',
    'ROLLBACK AND CHAIN',
    'BEGIN',
    'end;',
    '/* so */ COMMIT',
    '-- so\nCOMMIT',
    "PREPARE TRANSACTION 'x'",
  ]) {
    const ending = transaction(pool, async (tx) => {
      await tx.query(add, [1]);
      await tx.query(text);
    });
    await assert.rejects(ending, { code: 'TP_TRANSACTION_CONTROL' }, text);
  }
  assert.deepEqual(await numbers(), [0, 0]);
  await transaction(pool, async (tx) => {
    await tx.query('SAVEPOINT one');
    await tx.query(add, [1]);
    await tx.query('ROLLBACK TO SAVEPOINT one');
    await tx.query(add, [2]);
  });
  assert.deepEqual(await numbers(), [0, 1]);
});

test('an isolation level is one of three, and never a piece of SQL', async () => {
  const isolation = 'SERIALIZABLE; DROP TABLE accounts' as 'SERIALIZABLE';
  await assert.rejects(
    transaction(pool, async () => 1, { isolation }),
    { code: 'TP_OPTION' },
  );
});

test('settings of a transaction come as they are, whatever is in them', async () => {
  for (const value of ["it's", "\\'; DROP TABLE x; --", '$1 \\n {}']) {
    const localSettings = { application_name: value };
    const { rows } = await transaction(pool, (tx) => tx.query("SELECT current_setting('application_name') AS name"), {
      localSettings,
    });
    assert.equal(rows[0]!['name'], value);
  }
});
