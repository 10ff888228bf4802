import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import type { LoadResult } from './result.ts';

interface Ended {
  code: number | null;
  lines: Record<string, unknown>[];
  stderr: string;
}

async function program(args: string[], onLine: (line: object, pid: number) => void = () => {}): Promise<Ended> {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'main.ts'), '--json', ...args]);
  const lines: Record<string, unknown>[] = [];
  let stderr = '';
  child.stderr.on('data', (text) => (stderr += String(text)));
  createInterface(child.stdout).on('line', (text) => {
    const line = JSON.parse(text) as Record<string, unknown>;
    lines.push(line);
    onLine(line, child.pid!);
  });
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, lines, stderr };
}

test('says ready first and the result last, stops at SIGTERM, and leaves its files', async () => {
  const server = createServer((request, response) => {
    request.resume().on('end', () => response.writeHead(201).end(request.headers['idempotency-key']));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const directory = mkdtempSync(join(tmpdir(), 'load-'));
  try {
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const args = ['--url', url, '--rate', '200', '--duration', '60', '--clients', '8', '--seed', '5'];
    const files = ['--out', join(directory, 'out'), '--ledger', join(directory, 'ledger')];
    let metrics: Promise<string> | undefined;
    let admin = '';
    const { code, lines, stderr } = await program([...args, ...files], (line, pid) => {
      if ('admin' in line) admin = String(line.admin);
      if (!('second' in line)) return;
      metrics ??= fetch(`${admin}/metrics`).then((response) => response.text());
      metrics.finally(() => process.kill(pid, 'SIGTERM')).catch(() => {});
    });
    assert.equal(code, 0, stderr);
    assert.deepEqual([lines[0]?.['ready'], lines[0]?.['seed']], [true, 5]);
    const text = await metrics!;
    const sent = Number(/^load_sent_total (\d+)$/m.exec(text)?.[1]);
    assert.ok(sent > 100);
    const labels = 'door="http",operation="create",outcome="ok",reason="answered"';
    const ok = Number(new RegExp(`^load_request_duration_seconds_count{${labels}} (\\d+)$`, 'm').exec(text)?.[1]);
    assert.ok(ok > 100 && ok <= sent);
    assert.ok(text.includes(`load_request_duration_seconds_bucket{${labels},le="+Inf"} ${ok}\n`));
    for (const name of ['waiting_requests', 'in_flight_requests', 'unsettled_keys']) {
      assert.match(text, new RegExp(`^load_${name} \\d+$`, 'm'));
    }
    const { result } = lines.at(-1) as { result: LoadResult };
    assert.ok(result.interrupted && result.valid && result.counts.ok > 100);
    assert.match(result.command, /^npm run load -- .*--seed 5/);
    assert.equal(result.environment.node, process.version);
    assert.deepEqual(readdirSync(join(directory, 'out')), ['histograms.json', 'plot.svg', 'result.json']);
    assert.deepEqual(JSON.parse(readFileSync(join(directory, 'out/result.json'), 'utf8')), result);
    assert.match(readFileSync(join(directory, 'out/plot.svg'), 'utf8'), /^<svg [^]*<polyline [^]*<\/svg>\n$/);
    const ledger = readFileSync(join(directory, 'ledger'), 'latin1').split('\n');
    assert.equal(ledger.filter((line) => line.startsWith('i\t')).length, result.counts.sent);
  } finally {
    rmSync(directory, { recursive: true });
    server.closeAllConnections();
    server.close();
  }
});

test('a wrong call and a missing server have exit codes of their own', async () => {
  // Port 1 belongs to a service that nobody has run for decades.
  const [wrong, wrongTogether, nobody, nobodyAtAll] = await Promise.all([
    program(['--retry-rate', '7', '--status-rate', '-1', '--hot', '']),
    program(['--url', 'ftp://a', '--grpc', 'http://b', '--warmup', '60']),
    program(['--url', 'http://127.0.0.1:1']),
    program(['--grpc', '127.0.0.1:1']),
  ]);
  assert.deepEqual([wrong.code, wrongTogether.code], [2, 2]);
  assert.match(wrong.stderr, /--retry-rate .*, not '7'\n.*--status-rate .*\n.*--hot .*\n/);
  assert.match(wrongTogether.stderr, /url[^]*gRPC address[^]*warmup/);
  assert.deepEqual([nobody.code, nobodyAtAll.code], [3, 3]);
  assert.match(nobody.stderr, /ECONNREFUSED/);
  assert.match(nobodyAtAll.stderr, /nobody serves gRPC at 127\.0\.0\.1:1/);
});
