import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { after, test } from 'node:test';
import type { HttpAnswer } from './answer.ts';
import { keyLines, nodeListener, refuseUnreadable, type ReadRequest } from './node.ts';

/** What a test wants to be answered. */
let answer: (request: ReadRequest) => Promise<HttpAnswer>;
const asked: string[] = [];
const server = createServer(
  nodeListener(
    async (request) => {
      asked.push(request.body.toString());
      return answer(request);
    },
    { bodyLimitBytes: 10 },
  ),
);
refuseUnreadable(server);
await once(server.listen(0, '127.0.0.1'), 'listening');
const { port } = server.address() as AddressInfo;
after(() => {
  server.close();
  server.closeAllConnections();
});

async function opened(): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  return socket;
}

/** All that comes until the server closes the connection. */
async function read(socket: Socket): Promise<string> {
  const pieces: Buffer[] = [];
  try {
    for await (const piece of socket) pieces.push(piece as Buffer);
  } catch {
    // Reset: what came before counts.
  }
  return Buffer.concat(pieces).toString('latin1');
}

function requestText(body: string, lines: readonly string[] = ['connection: close']): string {
  return `${['POST / HTTP/1.1', 'host: x', ...lines].join('\r\n')}\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
}

const ok = (body: HttpAnswer['body']): HttpAnswer => ({ status: 201, headers: { etag: '"1"' }, body });

test('an answer has its status, headers, length and bytes, as a text and as bytes', async () => {
  for (const body of ['é', Buffer.from('é')]) {
    answer = async () => ok(body);
    const socket = await opened();
    socket.write(requestText('0123456789'));
    const [head, text] = (await read(socket)).split('\r\n\r\n');
    assert.match(head!, /^HTTP\/1\.1 201 Created\r\netag: "1"\r\ncontent-length: 2\r\n/);
    assert.equal(Buffer.from(text!, 'latin1').toString(), 'é');
    assert.equal(asked.at(-1), '0123456789');
  }
});

test('each line of a key is seen, also where Node would join them', async () => {
  let seen: string[] = [];
  answer = async (request) => {
    seen = keyLines(request);
    return ok('');
  };
  const socket = await opened();
  socket.write(requestText('', ['idempotency-key: a', 'Idempotency-Key: b', 'connection: close']));
  await read(socket);
  assert.deepEqual(seen, ['a', 'b']);
});

test('a body over the limit is a 413, and is asked of nobody', async () => {
  answer = async () => ok('');
  const before = asked.length;
  const socket = await opened();
  socket.write(requestText('01234567890', []));
  assert.match(await read(socket), /^HTTP\/1\.1 413 (.|\r|\n)*connection: close(.|\r|\n)*problem:body-too-large/i);
  assert.equal(asked.length, before);
});

test('who goes away before the request is whole has asked for nothing; afterwards it is carried out', async () => {
  const before = asked.length;
  const half = await opened();
  half.write('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nab');
  half.destroy();
  await once(half, 'close');
  const begun = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const finished = Promise.withResolvers<void>();
  answer = async () => {
    begun.resolve();
    await gate.promise;
    finished.resolve();
    return ok('');
  };
  const gone = await opened();
  gone.write(requestText('whole'));
  await begun.promise;
  gone.destroy();
  gate.resolve();
  await finished.promise;
  assert.deepEqual(asked.slice(before), ['whole']);
});

test('an error is a 500 without a word of it, and headers that cannot be written close the connection', async () => {
  answer = async () => {
    throw new Error('secret');
  };
  const socket = await opened();
  socket.write(requestText(''));
  const text = await read(socket);
  assert.match(text, /^HTTP\/1\.1 500 (.|\r|\n)*problem:internal/);
  assert.doesNotMatch(text, /secret/);
  answer = async () => ({ ...ok(''), headers: { 'no header': 'x' } });
  const other = await opened();
  other.write(requestText(''));
  assert.equal(await read(other), '');
});

test('what is no HTTP is a 400 or 431, unless an answer is owed on the connection: then it is closed', async () => {
  const noise = await opened();
  noise.write('NOISE\r\n\r\n');
  assert.match(await read(noise), /^HTTP\/1\.1 400 Bad Request\r\n(.|\r|\n)*"status":400/);
  const large = await opened();
  large.write(`POST / HTTP/1.1\r\nhost: x\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`);
  assert.match(await read(large), /^HTTP\/1\.1 431 /);
  const gate = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  answer = async () => {
    begun.resolve();
    await gate.promise;
    return ok('');
  };
  const owed = await opened();
  owed.write(requestText('', []));
  await begun.promise;
  owed.write('NOISE\r\n\r\n');
  assert.equal(await read(owed), '', 'a 400 would be taken for the answer of the first');
  gate.resolve();
});
