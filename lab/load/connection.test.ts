import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createConnection } from './connection.ts';
import type { Reason } from './line.ts';
import { defaults } from './options.ts';
import { planFrom } from './plan.ts';
import { until, withServers } from './servers-under-test.ts';

test('what is given up before there is a connection was surely never sent', async () => {
  let requests = 0;
  await withServers([() => requests++], async ([url = '']) => {
    const { hostname, port } = new URL(url);
    const reasons: Reason[] = [];
    const connection = createConnection({
      ...defaults,
      seed: 1,
      host: hostname,
      port: Number(port),
      onOpen() {},
      onDone: (_, __, reason) => reasons.push(reason),
    });
    const send = planFrom({ ...defaults, seed: 1 }).next()!;
    connection.prepare(send);
    connection.start(0);
    connection.abandon('timeout');
    assert.deepEqual(reasons, ['no-connection']);
    await connection.open();
    connection.prepare(send);
    connection.start(1);
    await until(() => requests === 1, 'asked');
    connection.abandon('timeout');
    assert.deepEqual(reasons, ['no-connection', 'timeout']);
  });
});
