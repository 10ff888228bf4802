import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { test } from 'node:test';
import pg from 'pg';
import { connectQuietly, isServerError } from './connection.ts';

test('an error is of the server when it bears an SQLSTATE, but for those that end the connection', () => {
  for (const code of ['23505', '40001', 'XX000', 'P0001', '0A000']) assert.equal(isServerError({ code }), true, code);
  const ofTheConnection = ['EPIPE', 'ECONNRESET', '57P01', '57P03', '08006', undefined, 'TP_OPTION'];
  for (const code of ofTheConnection) assert.equal(isServerError({ code }), false, code);
});

function message(type: string, body: string | readonly number[]): Buffer {
  const bytes = Buffer.from(body as string, 'latin1');
  const head = Buffer.from(`${type}\0\0\0\0`);
  head.writeInt32BE(bytes.length + 4, 1);
  return Buffer.concat([head, bytes]);
}

test('a server that greets and dies in one breath is an error of the query, not the end of the process', async (t) => {
  // One chunk is read in one go, so nobody has been given the client yet when its error comes.
  const breath = [message('R', [0, 0, 0, 0]), message('Z', 'I'), message('E', 'SFATAL\0C57P01\0Mgone\0\0')];
  const server = createServer((socket) => socket.once('data', () => socket.write(Buffer.concat(breath))));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const pool = new pg.Pool({ host: '127.0.0.1', port, user: 'x', database: 'x', password: 'x' });
  t.after(async () => {
    await pool.end();
    server.close();
  });
  const client = await connectQuietly(pool);
  await assert.rejects(client.query('SELECT 1'), /not queryable/);
  client.release(true);
});
