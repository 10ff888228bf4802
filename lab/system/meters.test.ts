import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import type { Kept } from './keep.ts';
import { createMeters } from './meters.ts';
import { openWindow, percentile } from './window.ts';

/** One process whose page and pid can be changed. */
async function oneProcess(t: TestContext) {
  const state = { page: '', pid: 1 };
  const server = createServer((_, response) => response.end(state.page)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const admin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const kept = {
    name: 'relay-1',
    get pid() {
      return state.pid;
    },
  } as Kept;
  return { state, meters: createMeters([{ role: 'relay-1', kind: 'relay', args: [], admin }], [kept]) };
}

test('counters are added up over all processes that had the role', async (t) => {
  const { state, meters } = await oneProcess(t);
  state.page = '# HELP seen all\nseen{kind="a"} 3\nseen{kind="b"} 4\nseen_more 100\n';
  await meters.sample();
  Object.assign(state, { page: 'seen{kind="a"} 1\n', pid: 2 });
  await meters.sample();
  assert.equal(meters.total('seen'), 8);
  assert.equal(meters.total('seen', 'kind="a"'), 4);
});

test('a gauge is of the process that runs', async (t) => {
  const { state, meters } = await oneProcess(t);
  state.page = 'pending 9\n';
  await meters.sample();
  assert.equal(meters.highest('pending'), 9);
  state.pid = 2;
  assert.equal(meters.highest('pending'), undefined);
});

test('rates and percentiles are of what came since the window begins', async (t) => {
  const { state, meters } = await oneProcess(t);
  const page = (count: number, slow: number): string =>
    `seen ${count}\ntook_bucket{le="0.1"} ${count - slow}\ntook_bucket{le="1"} ${count}\ntook_bucket{le="+Inf"} ${count}\n`;
  const window = openWindow(meters, [['seen']], ['took']);
  state.page = page(1_000, 1_000);
  await meters.sample();
  window.note();
  assert.equal(window.p99Ms('took'), undefined);
  state.page = page(1_100, 1_000);
  await meters.sample();
  window.note();
  assert.ok(window.rate('seen') > 0);
  assert.equal(window.p99Ms('took'), 99, 'all of the hundred that came were fast');
});

test('a percentile lies in the bucket that it falls into', () => {
  assert.equal(percentile([1, 2, Infinity], [50, 100, 100], 0.75), 1.5);
  assert.equal(percentile([1, 2, Infinity], [0, 0, 5], 0.99), 2);
  assert.equal(percentile([1, 2, Infinity], [0, 0, 0], 0.99), undefined);
});
