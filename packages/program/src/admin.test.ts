import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAdminServer, listenAdmin } from './admin.ts';
import { createMetrics } from './metrics.ts';

test('each path answers as what it is, and any other says which there are', async () => {
  const metrics = createMetrics();
  metrics.gauge('demo', 'A demo.', () => 7);
  let isReady = false;
  const ready = async (): Promise<void> => {
    if (!isReady) throw new Error('not yet');
  };
  const server = createAdminServer({ metrics, ready, json: { '/status': () => ({ up: true }) } });
  try {
    const base = await listenAdmin(server, 0);
    const ask = async (path: string, method = 'GET'): Promise<[number, string | null, string]> => {
      const answer = await fetch(base + path, { method });
      return [answer.status, answer.headers.get('content-type'), await answer.text()];
    };
    const [status, type, text] = await ask('/metrics');
    assert.match(`${status} ${type} ${text}`, /^200 text\/plain; version=0\.0\.4.* # HELP demo[^]*demo 7\n/);
    assert.deepEqual(await ask('/readyz'), [503, 'text/plain', 'not ready: not yet\n']);
    isReady = true;
    assert.deepEqual(await ask('/readyz'), [200, 'text/plain', 'ready\n']);
    assert.deepEqual(await ask('/status'), [200, 'application/json', '{"up":true}\n']);
    const others = [404, 'text/plain', '/metrics\n/livez\n/readyz\n/status\n'];
    assert.deepEqual(await ask('/'), others);
    assert.deepEqual(await ask('/status', 'POST'), others);
  } finally {
    server.close();
  }
});
