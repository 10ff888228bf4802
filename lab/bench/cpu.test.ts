import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { test } from 'node:test';
import {
  busyUs,
  canReadCpu,
  coresBetween,
  parseStat,
  readCpu,
  serverCpu,
  stolenShare,
  stolenUs,
  type Stat,
} from './cpu.ts';

test('a line of /proc, also of a process whose name has spaces and parentheses', () => {
  const rest = 'S 42 7 7 0 -1 4194560 100 200 0 0 150 50 30 20 20 0 1 0 12345 1000 10';
  const expected = { parent: 42, ownUs: 2_000_000, endedChildrenUs: 500_000 };
  assert.deepEqual(parseStat(`7 (postgres) ${rest}`), expected);
  assert.deepEqual(parseStat(`7 (a) b (c)) ${rest}`), expected);
});

test('what the machine was busy with: neither idle nor waiting for a disk', () => {
  assert.equal(busyUs('cpu  100 1 50 9000 777 2 3 4 60 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n'), 160 * 10_000);
});

test('cores are CPU time over time, and what is not ours is of others', () => {
  const before = { atMs: 1_000, us: { orders: 10, postgres: 20, load: 30 }, machineUs: 40, stolenUs: 0 };
  const after = {
    atMs: 3_000,
    us: { orders: 1_000_010, postgres: 500_020, load: 250_030 },
    machineUs: 2_000_040,
    stolenUs: 0,
  };
  assert.deepEqual(coresBetween(before, after), { orders: 0.5, postgres: 0.25, load: 0.125, others: 0.125 });
  assert.equal(coresBetween(before, { ...after, machineUs: 40 }).others, 0, 'ticks may make it look negative');
});

test('what the host has stolen is a share of the time of all cores', () => {
  assert.equal(stolenUs('cpu  100 1 50 9000 777 2 3 4 60 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n'), 40_000);
  const reading = { atMs: 0, us: {}, machineUs: 0, stolenUs: 5_000 };
  const after = { ...reading, atMs: 1_000, stolenUs: 5_000 + 20_000 * availableParallelism() };
  assert.equal(stolenShare(reading, after), 0.02);
});

test('a backend that ends while /proc is scanned is counted once', () => {
  const postmaster = { parent: 1, ownUs: 10, endedChildrenUs: 0 };
  const backend = { parent: 100, ownUs: 5_000, endedChildrenUs: 0 };
  const elsewhere = { parent: 1, ownUs: 70_000, endedChildrenUs: 0 };
  /** The server's backend is 101; it ends, and is waited for, just before or just after the scan looks at it. */
  const withEnd = (when: 'before' | 'after'): number => {
    let hasEnded = false;
    const look = (pid: string): Stat | undefined => {
      if (pid === '102') return elsewhere;
      if (pid === '100') return { ...postmaster, endedChildrenUs: hasEnded ? backend.ownUs : 0 };
      const wasThere = !hasEnded;
      hasEnded = true;
      return wasThere && when === 'after' ? backend : undefined;
    };
    return serverCpu(100, { pids: () => ['100', '101', '102'], statOf: (pid) => look(`${pid}`) });
  };
  assert.equal(withEnd('before'), 5_010);
  assert.equal(withEnd('after'), 5_010);
});

test('a server whose backends end all the time is read too', () => {
  let scans = 0;
  const pids = (): string[] => {
    scans += 1;
    return [];
  };
  const statOf = (): Stat => ({ parent: 1, ownUs: 0, endedChildrenUs: 1_000 * scans });
  const us = serverCpu(100, { pids, statOf });
  assert.equal(us, 1_000 * scans);
  assert.ok(scans > 1 && scans <= 20);
});

test('a busy child counts while it lives, and when it has ended', async () => {
  if (!canReadCpu) return; // Only Linux has /proc.
  // The child stands for a server, and its own child for a backend that has ended.
  const spin = 'for (const until = Date.now() + 300; Date.now() < until; );';
  const parent = `const child = require('node:child_process').spawn(process.execPath, ['-e', ${JSON.stringify(spin)}]);
    child.on('exit', () => { console.log('ended'); setInterval(() => {}, 1000); });`;
  const child = spawn(process.execPath, ['-e', parent], { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    await once(child.stdout, 'data');
    const pids = [child.pid!];
    const { us, machineUs, atMs } = readCpu({
      own: { pids: [process.pid] },
      server: { pids, withChildren: true },
      alone: { pids },
      nobody: { pids: [0] },
    });
    assert.ok(us.server - us.alone >= 100_000);
    assert.ok(us.own > 0 && machineUs > us.own && atMs > 0);
    assert.equal(us.nobody, 0, 'there is no such process');
  } finally {
    child.kill();
    await once(child, 'close');
  }
});
