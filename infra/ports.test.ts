import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { test } from 'node:test';
import { freePorts, requireFreePort } from './ports.ts';

test('free ports are distinct, and outside the range of outgoing connections', async () => {
  const ports = await freePorts(50);
  assert.equal(new Set(ports).size, 50);
  assert.ok(ports.every((port) => port >= 12_000 && port < 32_000));
});

test('a chosen port that is taken is refused with what to do', async (t) => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  await assert.rejects(requireFreePort(port, 'Postgres', '--postgres-port'), {
    name: 'Refusal',
    message: new RegExp(
      `Port ${port} for Postgres is taken by another program\\.\\n {2}Stop that program .* --postgres-port`,
    ),
  });
  server.close();
  await once(server, 'close');
  await requireFreePort(port, 'Postgres', '--postgres-port');
});

test('a port that was told is not told again, though nobody listens there yet', async () => {
  const ports: number[] = [];
  for (let n = 0; n < 100; n += 1) ports.push(...(await freePorts(10)));
  assert.equal(new Set(ports).size, ports.length);
});
