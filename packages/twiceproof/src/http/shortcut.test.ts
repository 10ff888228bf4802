import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { after, test } from 'node:test';
import type { HttpAnswer } from './answer.ts';
import { nodeListener, shortcut, type ReadRequest, type Shortcut } from './node.ts';

interface Serving {
  server: Server;
  short: Shortcut | undefined;
  /** The server's ends of connections. */
  sockets: Socket[];
  /** Which way each request has come. */
  ways: ('short' | 'node')[];
}

let answer: (request: ReadRequest) => Promise<HttpAnswer>;
const ok = (body: HttpAnswer['body']): HttpAnswer => ({ status: 201, headers: { etag: '"1"' }, body });

async function serve(hasShortcut: boolean): Promise<Serving> {
  const ways: Serving['ways'] = [];
  const server = createServer(
    nodeListener(async (request) => {
      ways.push('node');
      return answer(request);
    }),
  );
  const short = hasShortcut
    ? shortcut(server, (request) => {
        if (request.url === '/long') return undefined;
        if (request.url === '/throw') throw new Error('no such route');
        ways.push('short');
        return answer(request);
      })
    : undefined;
  const sockets: Socket[] = [];
  server.on('connection', (socket: Socket) => sockets.push(socket));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  after(() => {
    server.close();
    server.closeAllConnections();
    short?.closeAllConnections();
  });
  return { server, short, sockets, ways };
}

const short = await serve(true);
const ordinary = await serve(false);

async function opened({ server }: Serving): Promise<Socket> {
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  await once(socket, 'connect');
  return socket;
}

function requestText(body: string, url = '/'): string {
  return `POST ${url} HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
}

/** All that comes until `end` has come `count` times. */
async function readUntil(socket: Socket, end: string, count = 1): Promise<string> {
  let text = '';
  while (text.split(end).length <= count) {
    const [piece] = (await once(socket, 'data')) as [Buffer];
    text += piece.toString('latin1');
  }
  return text;
}

test('an answer has the bytes that node:http gives it', { timeout: 20_000 }, async () => {
  for (const body of ['done', 'é done', Buffer.from('é done')]) {
    answer = async () => ({ ...ok(body), headers: { etag: '"1"', 'set-cookie': ['a=1', 'b=2'] } });
    const [ours, theirs] = await Promise.all(
      [short, ordinary].map(async (serving) => {
        const socket = await opened(serving);
        socket.write(requestText('x'));
        const text = await readUntil(socket, 'done');
        socket.destroy();
        return text.replace(/Date: [^\r]*/, 'Date');
      }),
    );
    assert.equal(ours, theirs);
    assert.equal(short.ways.at(-1), 'short');
  }
});

test(
  'what is not plain, or not wanted, goes to the server with all that it has brought',
  { timeout: 20_000 },
  async () => {
    answer = async ({ body }) => ok(`${body.toString()} done`);
    const socket = await opened(short);
    const before = short.ways.length;
    socket.write(requestText('a'));
    assert.match(await readUntil(socket, 'done'), /\r\n\r\na done$/);
    socket.write(requestText('b', '/long'));
    assert.match(await readUntil(socket, 'done'), /\r\n\r\nb done$/);
    socket.write(requestText('c'));
    assert.match(await readUntil(socket, 'done'), /\r\n\r\nc done$/);
    socket.destroy();
    assert.deepEqual(short.ways.slice(before), ['short', 'node', 'node']);
  },
);

test("a request in pieces is the server's", { timeout: 20_000 }, async () => {
  answer = async ({ body }) => ok(`${body.toString()} done`);
  const text = requestText('whole');
  const socket = await opened(short);
  const before = short.ways.length;
  socket.write(text.slice(0, 30));
  // The first piece has been read: the shortcut listens no more.
  while (short.sockets.at(-1)!.bytesRead < 30) await new Promise(setImmediate);
  socket.write(text.slice(30));
  assert.match(await readUntil(socket, 'done'), /\r\n\r\nwhole done$/);
  socket.destroy();
  assert.deepEqual(short.ways.slice(before), ['node']);
});

test('what comes before an answer is given waits for it: answers keep their order', { timeout: 20_000 }, async () => {
  const gate = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  answer = async ({ body }) => {
    begun.resolve();
    if (body.toString() === 'a') await gate.promise;
    return ok(`${body.toString()} done`);
  };
  const socket = await opened(short);
  const before = short.ways.length;
  socket.write(requestText('a'));
  await begun.promise;
  socket.write(requestText('b'));
  const atServer = short.sockets.at(-1)!;
  while (!atServer.isPaused()) await new Promise(setImmediate);
  socket.write('NOISE\r\n\r\n');
  gate.resolve();
  const text = await readUntil(socket, 'HTTP/1.1', 3);
  socket.destroy();
  assert.deepEqual(text.match(/[ab] done|1\.1 \d+/g), ['1.1 201', 'a done', '1.1 201', 'b done', '1.1 400']);
  assert.deepEqual(short.ways.slice(before), ['short', 'short']);
});

test('who goes away is carried out, who only stops sending gets the answer', { timeout: 20_000 }, async () => {
  for (const leaves of ['destroy', 'end'] as const) {
    const gate = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    const finished = Promise.withResolvers<void>();
    answer = async () => {
      begun.resolve();
      await gate.promise;
      finished.resolve();
      return ok('done');
    };
    const socket = await opened(short);
    socket.write(requestText('x'));
    await begun.promise;
    const heard = once(short.sockets.at(-1)!, 'end');
    socket[leaves]();
    await heard;
    gate.resolve();
    await finished.promise;
    if (leaves === 'destroy') continue;
    assert.match(await readUntil(socket, 'done'), /201 Created/);
    await once(socket, 'close');
  }
});

test(
  'a connection that breaks while its request is carried out is left alone, whatever it has brought',
  { timeout: 20_000 },
  async () => {
    const gate = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    answer = async () => {
      begun.resolve();
      await gate.promise;
      return ok('done');
    };
    const socket = await opened(short);
    const before = short.ways.length;
    socket.write(requestText('a'));
    await begun.promise;
    const atServer = short.sockets.at(-1)! as Socket & { parser?: unknown };
    socket.write(requestText('b'));
    while (!atServer.isPaused()) await new Promise(setImmediate);
    const closed = new Promise((resolve) => atServer.once('close', resolve));
    socket.resetAndDestroy();
    await closed;
    gate.resolve();
    await new Promise(setImmediate);
    assert.equal(atServer.parser, undefined, 'nobody would ever free it');
    assert.deepEqual(short.ways.slice(before), ['short']);
  },
);

test('two requests, and then no more: both are answered', { timeout: 20_000 }, async () => {
  const gate = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  answer = async ({ body }) => {
    begun.resolve();
    if (body.toString() === 'a') await gate.promise;
    return ok(`${body.toString()} done`);
  };
  const socket = await opened(short);
  socket.write(requestText('a'));
  await begun.promise;
  const atServer = short.sockets.at(-1)!;
  socket.write(requestText('b'));
  while (!atServer.isPaused()) await new Promise(setImmediate);
  socket.end();
  gate.resolve();
  assert.deepEqual((await readUntil(socket, 'done', 2)).match(/[ab] done/g), ['a done', 'b done']);
  socket.resume();
  await once(socket, 'close');
});

test('two requests in one piece are answered in their order', { timeout: 20_000 }, async () => {
  answer = async ({ body }) => ok(`${body.toString()} done`);
  const socket = await opened(short);
  socket.write(requestText('a') + requestText('b') + requestText('c').slice(0, 20));
  assert.deepEqual((await readUntil(socket, 'done', 2)).match(/[ab] done/g), ['a done', 'b done']);
  socket.write(requestText('c').slice(20));
  assert.match(await readUntil(socket, 'done'), /c done$/);
  socket.destroy();
});

test('an answer that has no body by its status has none, and the next one follows', { timeout: 20_000 }, async () => {
  for (const serving of [short, ordinary]) {
    answer = async ({ body }) => (body.toString() === 'x' ? ok('done') : { ...ok('no body'), status: 204 });
    const socket = await opened(serving);
    socket.write(requestText('none'));
    const head = await readUntil(socket, '\r\n\r\n');
    assert.match(head, /^HTTP\/1\.1 204 No Content\r\netag: "1"\r\nDate/);
    assert.doesNotMatch(head, /content-length|no body/);
    socket.write(requestText('x'));
    assert.match(await readUntil(socket, 'done'), /^HTTP\/1\.1 201 /);
    socket.destroy();
  }
});

test('who else watches a connection hears of its end, also when it was handed over', { timeout: 20_000 }, async () => {
  answer = async () => ok('done');
  const socket = await opened(short);
  const atServer = short.sockets.at(-1)!;
  const heard = once(atServer, 'close');
  socket.write(requestText('x', '/long'));
  await readUntil(socket, 'done');
  socket.destroy();
  await heard;
});

test(
  'where the server has limits for requests on a socket, every request is its own',
  { timeout: 20_000 },
  async () => {
    answer = async () => ok('done');
    for (const limit of ['maxRequestsPerSocket', 'timeout'] as const) {
      short.server[limit] = 10_000;
      const before = short.ways.length;
      const socket = await opened(short);
      socket.write(requestText('x'));
      await readUntil(socket, 'done');
      socket.destroy();
      short.server[limit] = 0;
      assert.deepEqual(short.ways.slice(before), ['node'], limit);
    }
  },
);

test('a router that throws leaves the request to the server', { timeout: 20_000 }, async () => {
  answer = async () => ok('done');
  const socket = await opened(short);
  const before = short.ways.length;
  socket.write(requestText('x', '/throw'));
  await readUntil(socket, 'done');
  socket.destroy();
  assert.deepEqual(short.ways.slice(before), ['node']);
});

test(
  'an error is a 500 without a word of it, and headers that cannot be written close the connection',
  { timeout: 20_000 },
  async () => {
    answer = async () => {
      throw new Error('secret');
    };
    const socket = await opened(short);
    socket.write(requestText(''));
    const text = await readUntil(socket, 'problem:internal');
    assert.match(text, /^HTTP\/1\.1 500 /);
    assert.doesNotMatch(text, /secret/);
    for (const headers of [
      { 'no header': 'x' },
      { etag: 'a\r\nset-cookie: b' },
      { link: ['a', 'b\r\nc: d'] },
      { connection: 'close' },
    ]) {
      answer = async () => ({ ...ok(''), headers });
      const other = await opened(short);
      let got = '';
      other.on('data', (piece: Buffer) => (got += piece.toString()));
      other.write(requestText(''));
      await once(other, 'close');
      assert.equal(got, '');
    }
    socket.destroy();
  },
);

test('a client that takes no answers is asked no more until it does', { timeout: 20_000 }, async () => {
  answer = async () => ok(Buffer.alloc(1_000_000, 'x'));
  const socket = await opened(short);
  socket.pause();
  const atServer = short.sockets.at(-1)!;
  let sent = 0;
  while (!atServer.isPaused()) {
    if (atServer.bytesWritten >= sent * 1_000_000) {
      sent += 1;
      socket.write(requestText('x'));
    }
    await new Promise(setImmediate);
  }
  let bytes = 0;
  socket.on('data', (piece: Buffer) => (bytes += piece.length));
  socket.resume();
  while (atServer.isPaused() || bytes < sent * 1_000_000) await new Promise(setImmediate);
  answer = async () => ok('done');
  socket.write(requestText('x'));
  assert.match(await readUntil(socket, 'done'), /201 Created/);
  socket.destroy();
  assert.equal(short.ways.at(-1), 'short');
});

test(
  'a connection that is idle is closed after its time, and one that waits for an answer is not',
  { timeout: 20_000 },
  async () => {
    const serving = await serve(true);
    serving.server.keepAliveTimeout = 1;
    const gate = Promise.withResolvers<void>();
    answer = async ({ body }) => {
      if (body.toString() === 'slow') await gate.promise;
      return ok('done');
    };
    const [idle, slow, fresh] = await Promise.all([opened(serving), opened(serving), opened(serving)]);
    slow.write(requestText('slow'));
    idle.write(requestText('x'));
    await readUntil(idle, 'done');
    idle.resume();
    await once(idle, 'close');
    assert.equal(slow.destroyed || fresh.destroyed, false);
    gate.resolve();
    assert.match(await readUntil(slow, 'done'), /201 Created/);
    fresh.write(requestText('x'));
    assert.match(await readUntil(fresh, 'done'), /201 Created/);
    slow.destroy();
    fresh.destroy();
  },
);

test(
  'a server that stops closes what is idle, and what is under way when it is answered',
  { timeout: 20_000 },
  async () => {
    const serving = await serve(true);
    const gate = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    answer = async () => {
      begun.resolve();
      await gate.promise;
      return ok('done');
    };
    const [idle, busy] = await Promise.all([opened(serving), opened(serving)]);
    busy.write(requestText('x'));
    await begun.promise;
    const closed = new Promise((resolve) => serving.server.close(resolve));
    serving.short!.closeIdleConnections();
    idle.resume();
    await once(idle, 'close');
    gate.resolve();
    assert.match(await readUntil(busy, 'done'), /\r\nConnection: close\r\n/);
    await once(busy, 'close');
    await closed;
  },
);
