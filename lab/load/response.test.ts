import assert from 'node:assert/strict';
import { createServer, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import { connect, type AddressInfo } from 'node:net';
import { test } from 'node:test';
import fc from 'fast-check';
import { digestText } from './digest.ts';
import { createParser, type Progress } from './response.ts';

interface Read {
  progress: Progress;
  status: number;
  digest: string;
  keepAlive: boolean;
  problem: string;
}

/** Reads a response that comes in pieces, cut at these offsets. */
function read(text: string, cuts: readonly number[] = [], { thenEnd = false, maxBytes = 10_000 } = {}): Read {
  const parser = createParser(maxBytes);
  const bytes = Buffer.from(text, 'latin1');
  const edges = [0, ...cuts.filter((cut) => cut > 0 && cut < bytes.length).toSorted((a, b) => a - b), bytes.length];
  // As the sockets do it: one buffer, which the next piece overwrites.
  const shared = Buffer.alloc(bytes.length);
  let progress: Progress = 'more';
  for (let index = 1; index < edges.length && progress === 'more'; index++) {
    const size = bytes.copy(shared, 0, edges[index - 1], edges[index]);
    progress = parser.feed(shared, size);
    shared.fill(0);
  }
  if (thenEnd && progress === 'more') progress = parser.end();
  const { status, keepAlive, problem } = parser;
  return { progress, status, keepAlive, problem, digest: progress === 'done' ? digestText(parser.digest) : '' };
}

const plain = 'HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{"order":17}';
const chunked =
  'HTTP/1.1 201 Created\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n' +
  '5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nx-trailer: 1\r\n\r\n';
const untilClose = 'HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nto the end';
const empty = 'HTTP/1.1 204 \r\nx: y\r\n\r\n';

test('a response reads the same, wherever it is cut', () => {
  for (const text of [plain, chunked, untilClose, empty]) {
    const thenEnd = text === untilClose;
    const whole = read(text, [], { thenEnd });
    assert.equal(whole.progress, 'done', text);
    for (let cut = 1; cut < text.length; cut++) assert.deepEqual(read(text, [cut], { thenEnd }), whole);
    const each = Array.from({ length: text.length }, (_, index) => index);
    assert.deepEqual(read(text, each, { thenEnd }), whole);
  }
});

test('what the body names is found, in whatever framing, and nothing else is taken for it', () => {
  const id = '0198f7a2-1111-7222-8333-444455556666';
  const body = `{"order_id":"${id}","status":"paid","version":12}`;
  const named = (text: string): unknown[] => {
    const parser = createParser(10_000);
    const bytes = Buffer.alloc(20_000);
    // What an earlier answer has left in the buffer behind this one.
    bytes.write(body, text.length);
    parser.feed(bytes, bytes.write(text, 'latin1'));
    if (text.includes('close')) parser.end();
    return [parser.orderId(), parser.version()];
  };
  const withLength = (text: string): string => `HTTP/1.1 200 OK\r\ncontent-length: ${text.length}\r\n\r\n${text}`;
  assert.deepEqual(named(withLength(body)), [id, 12]);
  assert.deepEqual(named(`HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n${body}`), [id, 12]);
  const size = body.length.toString(16);
  const inChunks = `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${size}\r\n${body}\r\n0\r\n\r\n`;
  assert.deepEqual(named(inChunks), [id, 12]);
  for (const other of ['', '{}', '{"order_id":"17"}', `{"order_id":"${'\t'.repeat(36)}"}`, '{"version":null}']) {
    assert.deepEqual(named(withLength(other)), [undefined, undefined], other);
  }
});

test('generated responses: any header, any body, any chunks, any cuts', () => {
  const header = fc.tuple(fc.stringMatching(/^x-[a-z]{1,8}$/), fc.stringMatching(/^[!-~]([ -~]{0,20}[!-~])?$/));
  const pieces = fc.array(fc.string({ unit: 'binary-ascii', minLength: 1, maxLength: 40 }), { maxLength: 5 });
  fc.assert(
    fc.property(
      fc.array(header, { maxLength: 6 }),
      pieces,
      fc.boolean(),
      fc.array(fc.nat(600), { maxLength: 8 }),
      (headers, body, inChunks, cuts) => {
        const framing = inChunks ? 'transfer-encoding: chunked' : `content-length: ${body.join('').length}`;
        const lines = [...headers.map(([name, value]) => `${name}: ${value}`), framing];
        const chunks = [...body.map((piece) => `${piece.length.toString(16)}\r\n${piece}\r\n`), '0\r\n\r\n'];
        const text = `HTTP/1.1 201 Made\r\n${lines.join('\r\n')}\r\n\r\n${(inChunks ? chunks : body).join('')}`;
        const whole = read(text);
        assert.deepEqual([whole.progress, whole.status, whole.keepAlive], ['done', 201, true], whole.problem);
        assert.deepEqual(read(text, cuts), whole);
        // Nothing short of all of it is an answer.
        assert.equal(read(text.slice(0, -1)).progress, 'more');
      },
    ),
  );
});

test('the digest sees status, end-to-end headers, body and trailers, and nothing of the hop', () => {
  const { digest } = read(plain);
  const same = [
    plain.replace('Content-Type', 'content-TYPE'),
    plain.replace('\r\n\r\n', '\r\nDate: today\r\nKeep-Alive: timeout=5\r\nConnection: close\r\n\r\n'),
    plain.replace('application/json', ' \tapplication/json \t'),
  ];
  for (const text of same) assert.equal(read(text).digest, digest, text);
  const others = [
    plain.replace('201', '200'),
    plain.replace('Created', 'created'),
    plain.replace('json', 'jsom'),
    plain.replace('17', '18'),
    plain.replace('\r\n\r\n', '\r\nETag: 1\r\n\r\n'),
    plain.replace('\r\n\r\n', '\r\nEtag1: \r\n\r\n'),
  ];
  assert.equal(new Set([digest, ...others.map((text) => read(text).digest)]).size, others.length + 1);
  assert.notEqual(read(chunked).digest, read(chunked.replace('x-trailer: 1', 'x-trailer: 2')).digest);
  // Where chunks begin and end is the hop's business.
  const rechunked = chunked.replace('5;x=y\r\nhello\r\n6\r\n world', 'b\r\nhello world');
  assert.equal(read(rechunked).digest, read(chunked).digest);
});

test('what another reader might take otherwise is refused', () => {
  const refused: [string, RegExp][] = [
    ['HTTP/1.0 200 OK\r\n\r\n', /status line/],
    ['http/1.1 200 OK\r\n\r\n', /status line/],
    ['HTTP/1.1 20 OK\r\n\r\n', /status line/],
    ['HTTP/1.1 100 Continue\r\n\r\n', /interim/],
    ['HTTP/1.1 200 OK\n\n', /bare/],
    [plain.replace('Content-Type:', 'Content-Type :'), /malformed/],
    [plain.replace('Content-Type:', ' folded:'), /malformed/],
    [plain.replace('application', 'appli\0cation'), /malformed/],
    [plain.replace('Content-Type: application/json', 'no colon'), /malformed/],
    [plain.replace('Content-Length: 12', 'Content-Length: +12'), /length/],
    [plain.replace('Content-Length: 12', 'Content-Length: 12\r\nContent-Length: 12'), /two lengths/],
    [plain.replace('Content-Length: 12', 'Content-Length: 12\r\nTransfer-Encoding: chunked'), /length and chunks/],
    [plain.replace('Content-Length: 12', 'Transfer-Encoding: gzip, chunked'), /coding/],
    [`${plain}x`, /after the end/],
    [chunked.replace('5;x=y', '4'), /longer/],
    [chunked.replace('5;x=y', 'five'), /chunk size/],
    [chunked.replace('x-trailer', 'content-length'), /trailer/],
  ];
  for (const [text, problem] of refused) {
    const found = read(text);
    assert.equal(found.progress, 'broken', text);
    assert.match(found.problem, problem);
  }
  assert.match(read(plain, [], { maxBytes: 50 }).problem, /more than 50 bytes/);
  assert.equal(read(plain.slice(0, -1), [], { thenEnd: true }).progress, 'broken');
  assert.equal(read(plain.replace('\r\n\r\n', '\r\nConnection: x, Close\r\n\r\n')).keepAlive, false);
});

test('answers of a real server', async () => {
  const shapes: Record<string, (response: ServerResponse) => void> = {
    '/length': (response) => response.writeHead(201, { 'content-length': 5 }).end('hello'),
    '/chunks': (response) => {
      response.writeHead(201, { trailer: 'x-sum' });
      response.write('hel');
      response.addTrailers({ 'x-sum': '1' });
      response.end('lo');
    },
    '/close': (response) => response.writeHead(201, { connection: 'close', 'content-length': 5 }).end('hello'),
    '/empty': (response) => response.writeHead(204).end(),
  };
  const server = createServer((request, response) => shapes[request.url ?? '']!(response)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    for (const path of Object.keys(shapes)) {
      const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
      const parser = createParser(10_000);
      socket.write(`GET ${path} HTTP/1.1\r\nhost: a\r\n\r\n`);
      let progress: Progress = 'more';
      for await (const piece of socket) {
        progress = parser.feed(piece as Buffer, (piece as Buffer).length);
        if (progress !== 'more') break;
      }
      assert.equal(progress, 'done', `${path}: ${parser.problem}`);
      assert.equal(parser.status, path === '/empty' ? 204 : 201);
      assert.equal(parser.keepAlive, path !== '/close');
    }
  } finally {
    server.closeAllConnections();
    server.close();
  }
});
