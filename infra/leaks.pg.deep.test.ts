import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

/** The guard itself must be seen to turn a test red, so a file with a leaking test is run for real. */
function runLeakingTest(body: string, before = ''): { status: number | null; output: string } {
  const directory = mkdtempSync(join(tmpdir(), 'twiceproof-leak-'));
  const file = join(directory, 'leaks.test.mts');
  const from = (name: string): string => JSON.stringify(join(import.meta.dirname, name));
  writeFileSync(
    file,
    `import { test, after } from 'node:test';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { testDatabase } from ${from('testing.ts')};
import pg from ${JSON.stringify(import.meta.resolve('pg'))};
const { url } = await testDatabase();
const client = new pg.Client(url);
await client.connect();
client.on('error', () => {});
after(async () => client.end());
let server, pool, other;
${before}
after(async () => { server?.close(); await pool?.end(); });
test('it leaks', async () => { ${body} });
`,
  );
  const env = { ...process.env };
  delete env['NODE_TEST_CONTEXT'];
  const { status, stdout } = spawnSync(process.execPath, ['--test', file], { encoding: 'utf8', env });
  rmSync(directory, { recursive: true });
  return { status, output: stdout };
}

test('a test that leaves a transaction open is red, though its own assertions hold', () => {
  const { status, output } = runLeakingTest(`await client.query('BEGIN'); await client.query('SELECT 7');`);
  assert.equal(status, 1);
  assert.match(output, /the test left behind: backend \d+ is idle in transaction after: SELECT 7/);
});

test('a test that leaves a server open is red, an idle connection of a pool is not', () => {
  const pooled = runLeakingTest('pool = new pg.Pool({ connectionString: url }); await pool.query("SELECT 1");');
  assert.equal(pooled.status, 0, pooled.output);
  const { status, output } = runLeakingTest('server = createServer().listen(0, "127.0.0.1");');
  assert.equal(status, 1);
  assert.match(output, /the test left behind: 1 open handles/);
});

test('one that leaves nothing is green', () => {
  const { status, output } = runLeakingTest(`await client.query('BEGIN'); await client.query('COMMIT');`);
  assert.equal(status, 0, output);
});

test('a connection of another program that ends while a test runs is not of the test', () => {
  // A thread of its own is as good as a process: its sockets are not ours.
  const connects = `
    const { workerData: [url, pg] } = require('node:worker_threads');
    import(pg).then(async ({ default: { Client } }) => {
      await new Client(url).connect();
      require('node:worker_threads').parentPort.postMessage('connected');
    });`;
  const before = `
other = new Worker(${JSON.stringify(connects)}, { eval: true, workerData: [url, ${JSON.stringify(import.meta.resolve('pg'))}] });
await once(other, 'message');`;
  const { status, output } = runLeakingTest('await other.terminate();', before);
  assert.equal(status, 0, output);
});
