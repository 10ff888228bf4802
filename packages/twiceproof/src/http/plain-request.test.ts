import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { after, test } from 'node:test';
import fc from 'fast-check';
import { readPlainRequest, type ReadRequest } from './plain-request.ts';

/** What Node's own parser makes of a request. */
const byNode: ReadRequest[] = [];
const server = createServer((message, response) => {
  const pieces: Buffer[] = [];
  message.on('data', (piece: Buffer) => pieces.push(piece));
  message.on('end', () => {
    const { method = '', url = '', headers, rawHeaders } = message;
    byNode.push({ method, url, headers, rawHeaders, body: Buffer.concat(pieces) });
    response.end();
  });
});
await once(server.listen(0, '127.0.0.1'), 'listening');
after(() => {
  server.close();
  server.closeAllConnections();
});

async function readByNode(bytes: Buffer): Promise<ReadRequest[]> {
  byNode.length = 0;
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  socket.resume().end(bytes);
  await once(socket, 'close');
  return [...byNode];
}

const plain = (...lines: string[]): Buffer => Buffer.from(`${lines.join('\r\n')}\r\n\r\n{}`, 'latin1');

test('a plain request is read whole', () => {
  const request = readPlainRequest(
    plain('POST /orders?a=%20 HTTP/1.1', 'Host: x', 'X-Y: a: b  c', 'content-length: 2'),
  );
  assert.deepEqual(
    { ...request, headers: { ...request?.headers } },
    {
      method: 'POST',
      url: '/orders?a=%20',
      headers: { host: 'x', 'x-y': 'a: b  c', 'content-length': '2' },
      rawHeaders: ['Host', 'x', 'X-Y', 'a: b  c', 'content-length', '2'],
      body: Buffer.from('{}'),
    },
  );
});

const first = 'POST /orders HTTP/1.1';
const others: Readonly<Record<string, Buffer>> = {
  'no end of its head': Buffer.from('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n'),
  'a method without a body': plain('GET / HTTP/1.1', 'host: x', 'content-length: 2'),
  'another version': plain('POST / HTTP/1.0', 'host: x', 'content-length: 2'),
  'a whole URL': plain('POST http://x/ HTTP/1.1', 'host: x', 'content-length: 2'),
  'no host': plain(first, 'content-length: 2'),
  'two hosts': plain(first, 'host: x', 'Host: x', 'content-length: 2'),
  'a name twice': plain(first, 'host: x', 'idempotency-key: a', 'Idempotency-Key: b', 'content-length: 2'),
  'no length': plain(first, 'host: x'),
  'a length with a sign': plain(first, 'host: x', 'content-length: +2'),
  'a length with a zero in front': plain(first, 'host: x', 'content-length: 02'),
  'too few bytes': plain(first, 'host: x', 'content-length: 3'),
  'too many bytes': plain(first, 'host: x', 'content-length: 1'),
  chunks: plain(first, 'host: x', 'content-length: 2', 'transfer-encoding: chunked'),
  'a client that waits': plain(first, 'host: x', 'content-length: 2', 'expect: 100-continue'),
  'an upgrade': plain(first, 'host: x', 'content-length: 2', 'upgrade: h2c'),
  'the last of its connection': plain(first, 'host: x', 'content-length: 2', 'connection: close'),
  'a folded line': plain(first, 'host: x', 'a: b', ' c', 'content-length: 2'),
  'no blank behind a colon': plain(first, 'host:x', 'content-length: 2'),
  'two blanks behind a colon': plain(first, 'host:  x', 'content-length: 2'),
  'a blank at an end': plain(first, 'host: x ', 'content-length: 2'),
  'a tab': plain(first, 'host: x', 'a: b\tc', 'content-length: 2'),
  'an empty value': plain(first, 'host: x', 'a: ', 'content-length: 2'),
  'letters beyond ASCII': plain(first, 'host: x', 'a: \u00e9', 'content-length: 2'),
  'a bare line feed': plain(first, 'host: x\na: b', 'content-length: 2'),
  'a bare carriage return': plain(first, 'host: x\ra: b', 'content-length: 2'),
  'an odd name': plain(first, 'host: x', '__proto__: b', 'content-length: 2'),
  'a long head': plain(first, 'host: x', `a: ${'b'.repeat(5_000)}`, 'content-length: 2'),
};

for (const [what, bytes] of Object.entries(others)) {
  test(`left to Node: ${what}`, () => assert.equal(readPlainRequest(bytes), undefined));
}

test('whatever is taken, Node reads in the same way', async () => {
  const mostly = <T>(usual: T, ...odd: T[]): fc.Arbitrary<T> =>
    fc.oneof({ weight: 30, arbitrary: fc.constant(usual) }, { weight: 1, arbitrary: fc.constantFrom(...odd) });
  const text = fc.string({
    unit: fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)),
    maxLength: 6,
  });
  const line = fc
    .tuple(
      fc.oneof(
        {
          weight: 20,
          arbitrary: fc.constantFrom('Accept', 'x-a', 'Cookie', 'authorization', 'Idempotency-Key', 'User-Agent'),
        },
        {
          weight: 1,
          arbitrary: fc.constantFrom('Connection', 'TE', 'Set-Cookie', 'x_y', '__proto__', 'Transfer-Encoding'),
        },
        { weight: 1, arbitrary: text },
      ),
      mostly(': ', ':', ' : ', ':  ', ':\t'),
      fc.oneof(
        {
          weight: 20,
          arbitrary: fc.constantFrom('a', 'a, b', '"q"', 'a: b', 'close', 'keep-alive', 'Keep-Alive', 'chunked'),
        },
        { weight: 1, arbitrary: text },
      ),
      mostly('\r\n', '\n', '\r', ' \r\n', '\r\n '),
    )
    .map((parts) => parts.join(''));
  const request = fc
    .record({
      method: mostly('POST', 'PUT', 'PATCH', 'DELETE', 'post', 'GET', 'P'),
      target: fc.oneof(
        fc.constantFrom('/', '/orders', '/orders/1?x=%00#y', '//', '/"<>'),
        text.map((odd) => `/${odd}`),
      ),
      version: mostly('HTTP/1.1', 'HTTP/1.0', 'HTTP/1.1 ', 'http/1.1'),
      host: mostly('Host: x\r\n', 'host: \r\n', ''),
      lines: fc.array(line, { maxLength: 5 }),
      length: mostly('=', '+', '0', ' ', ','),
      body: fc.uint8Array({ maxLength: 20 }),
      wrong: mostly(0, -1, 1),
    })
    .map(({ method, target, version, host, lines, length, body, wrong }) => {
      const stated = `${length === '=' ? '' : length}${body.length + wrong}`;
      const head = `${method} ${target} ${version}\r\n${host}${lines.join('')}Content-Length: ${stated}\r\n\r\n`;
      return Buffer.concat([Buffer.from(head, 'latin1'), body]);
    });
  let taken = 0;
  await fc.assert(
    fc.asyncProperty(request, async (bytes) => {
      const ours = readPlainRequest(bytes);
      if (!ours) return;
      taken += 1;
      const [theirs, ...more] = await readByNode(bytes);
      assert.deepEqual(more, []);
      assert.deepEqual({ ...ours, headers: { ...ours.headers } }, { ...theirs, headers: { ...theirs?.headers } });
    }),
    { numRuns: 3_000 },
  );
  assert.ok(taken > 300, `only ${taken} were taken`);
});
