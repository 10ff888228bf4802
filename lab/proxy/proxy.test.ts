import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { sends } from './fault.ts';
import { startProxy, type FaultProxy } from './proxy.ts';

interface Setup {
  proxy: FaultProxy;
  /** The server's ends of the connections, in order. */
  accepted: Socket[];
  /** All that the server has received. */
  received(): string;
  open(): Promise<Socket>;
}

async function setup(t: TestContext, serve: (socket: Socket) => void): Promise<Setup> {
  const accepted: Socket[] = [];
  let received = '';
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    accepted.push(socket.on('error', () => {}));
    socket.on('data', (bytes: Buffer) => (received += bytes.toString('latin1')));
    serve(socket);
  });
  const proxy = await startProxy({ target: { host: '127.0.0.1', port: await listen(server) } });
  const opened: Socket[] = [];
  t.after(async () => {
    for (const socket of [...opened, ...accepted]) socket.destroy();
    await proxy.close();
    server.close();
  });
  const open = async (): Promise<Socket> => {
    const socket = connect({ port: proxy.port, host: '127.0.0.1', allowHalfOpen: true });
    opened.push(socket.on('error', () => {}));
    await once(socket, 'connect');
    return socket;
  };
  return { proxy, accepted, received: () => received, open };
}

async function listen(server: Server): Promise<number> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return (server.address() as AddressInfo).port;
}

function echo(socket: Socket): void {
  socket.on('data', (bytes) => socket.write(bytes)).on('end', () => socket.end());
}

async function roundTrip(socket: Socket, text: string): Promise<string> {
  socket.write(text);
  let answer = '';
  while (answer.length < text.length) {
    const [bytes] = (await once(socket, 'data')) as [Buffer];
    answer += bytes.toString('latin1');
  }
  return answer;
}

async function eventually(condition: () => boolean, what: string): Promise<void> {
  const deadline = Date.now() + 5_000;
  while (!condition()) {
    assert.ok(Date.now() < deadline, `within 5 s: ${what}`);
    await delay(5);
  }
}

/** How a connection ended: by an error code, or with nothing but its end. */
async function endOf(socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    socket.once('end', () => resolve('end'));
    socket.resume();
  });
}

test('transparent: every byte both ways, half-closes included, and counted', async (t) => {
  const { proxy, open } = await setup(t, echo);
  const sent = Buffer.alloc(3_000_000, 'every byte counts, 31 of them. ');
  const client = await open();
  client.end(sent);
  const answer = await buffer(client);
  const hash = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
  assert.equal(hash(answer), hash(sent));
  assert.deepEqual(proxy.counts.bytes, { 'to-server': sent.length, 'to-client': sent.length });
  await eventually(() => proxy.counts.open === 0, 'the connection is closed on both sides');
  assert.equal(proxy.counts.connections, 1);
  assert.deepEqual(new Set(Object.values(proxy.counts.fired)), new Set([0]));
});

test('a reader that does not read stops the writer: the proxy does not hoard', async (t) => {
  const total = 100e6;
  const { proxy, open, accepted } = await setup(t, (socket) => {
    socket.on('data', (bytes) =>
      bytes.includes('all of it') ? socket.write(Buffer.alloc(total)) : socket.write(bytes),
    );
  });
  const [lazy, busy] = [await open(), await open()];
  lazy.pause();
  lazy.write('all of it');
  await eventually(() => accepted[0]!.bytesWritten > 0 && proxy.counts.bytes['to-client'] > 1e5, 'it flows');
  // While these go to and fro, 100 MB would have come through many times over.
  for (let round = 0; round < 500; round += 1) await roundTrip(busy, 'ping');
  assert.ok(proxy.counts.bytes['to-client'] < 20e6, `${proxy.counts.bytes['to-client']} bytes were taken`);
  let read = 0;
  lazy.on('data', (bytes) => (read += bytes.length)).resume();
  await eventually(() => read === total, 'and all of it comes when it is read');
});

test('a server that is not there: the client is told', async (t) => {
  const unused = createServer();
  const port = await listen(unused);
  unused.close();
  const proxy = await startProxy({ target: { host: '127.0.0.1', port } });
  t.after(async () => proxy.close());
  const client = connect(proxy.port, '127.0.0.1');
  assert.equal(await endOf(client), 'ECONNRESET');
  await eventually(() => proxy.counts.open === 0, 'nothing stays open');
});

test('cut: all open connections at once, and each that comes, until healed', async (t) => {
  const { proxy, open, accepted } = await setup(t, echo);
  const clients = [await open(), await open()];
  for (const client of clients) await roundTrip(client, 'hello');
  const ends = [...clients, ...accepted].map(endOf);
  proxy.all({ kind: 'cut' });
  await proxy.fired('cut', { times: 2 });
  assert.deepEqual(await Promise.all(ends), ['end', 'end', 'end', 'end']);
  const third = await open();
  await endOf(third);
  assert.equal(proxy.counts.fired.cut, 3);
  proxy.heal();
  assert.equal(await roundTrip(await open(), 'hello'), 'hello');
  assert.equal(proxy.counts.fired.cut, 3);
});

test('next: one connection only, the one whose bytes it waits for; cut leaves these bytes unsent', async (t) => {
  const { proxy, open, received } = await setup(t, echo);
  const [first, second] = [await open(), await open()];
  proxy.next({ kind: 'cut', when: sends('COMMIT') });
  assert.equal(await roundTrip(first, 'INSERT'), 'INSERT');
  const end = endOf(second);
  second.write('COMMIT');
  assert.equal(await end, 'end');
  assert.equal(await roundTrip(first, 'COMMIT'), 'COMMIT', 'once is once');
  assert.equal(received(), 'INSERTCOMMIT');
  assert.equal(proxy.counts.fired.cut, 1);
  proxy.next({ kind: 'cut' });
  await endOf(await open());
  assert.equal(await roundTrip(first, 'still here'), 'still here');
  assert.equal(proxy.counts.fired.cut, 2);
});

test('black hole: neither bytes nor ends come through; healing resets what has lost bytes, and only that', async (t) => {
  const { proxy, open, accepted, received } = await setup(t, echo);
  const [lying, quiet] = [await open(), await open()];
  await roundTrip(lying, 'before');
  await roundTrip(quiet, 'BEFORE');
  proxy.all({ kind: 'black-hole' });
  assert.equal(proxy.counts.fired['black-hole'], 0, 'nothing was swallowed yet');
  lying.write('nobody hears this');
  accepted[0]!.write('nor this');
  lying.end();
  await eventually(
    () => proxy.counts.lost['to-server'] === 17 && proxy.counts.lost['to-client'] === 8,
    'it is swallowed',
  );
  assert.equal(proxy.counts.fired['black-hole'], 1);
  const late = await open();
  late.write('hello?');
  await proxy.fired('black-hole', { times: 2 });
  assert.equal(received(), 'beforeBEFORE');
  assert.equal(accepted[0]!.readableEnded, false, 'the server believes that its client lives');
  const ends = [accepted[0]!, late].map(endOf);
  proxy.heal();
  assert.deepEqual(await Promise.all(ends), ['ECONNRESET', 'ECONNRESET']);
  assert.equal(await roundTrip(quiet, 'I lost nothing'), 'I lost nothing');
});

test('one way: the other direction goes on', async (t) => {
  const { proxy, open, received } = await setup(t, echo);
  const deaf = await open();
  await roundTrip(deaf, 'x');
  proxy.all({ kind: 'one-way', lost: 'to-client' });
  deaf.write('I speak');
  await proxy.fired('one-way');
  assert.equal(received(), 'xI speak');
  assert.deepEqual(proxy.counts.lost, { 'to-server': 0, 'to-client': 7 });

  const { proxy: other, open: openOther, accepted, received: heard } = await setup(t, echo);
  const mute = await openOther();
  await roundTrip(mute, 'x');
  other.all({ kind: 'one-way', lost: 'to-server' });
  mute.write('I speak');
  await other.fired('one-way');
  accepted[0]!.write('I hear');
  assert.equal(String((await once(mute, 'data'))[0]), 'I hear');
  assert.equal(heard(), 'x');
});

test('lose the answer: the request arrives, its answer does not, nor does the connection live on', async (t) => {
  const { proxy, open, accepted, received } = await setup(t, echo);
  const client = await open();
  await roundTrip(client, 'INSERT');
  proxy.next({ kind: 'lose-answer', when: sends('COMMIT') });
  assert.equal(await roundTrip(client, 'SELECT'), 'SELECT', 'not yet');
  let more = '';
  client.on('data', (bytes) => (more += bytes.toString()));
  const ends = [client, accepted[0]!].map(endOf);
  client.write('COMMIT');
  assert.deepEqual(await Promise.all(ends), ['end', 'end']);
  assert.equal(received(), 'INSERTSELECTCOMMIT');
  assert.equal(more, '');
  assert.equal(proxy.counts.fired['lose-answer'], 1);
  assert.equal(proxy.counts.lost['to-client'], 6);
});

test('lose the answer after some bytes of it: half an HTTP response', async (t) => {
  let served = 0;
  const server = createHttpServer((_request, response) => {
    served += 1;
    response.end('{"order_id":"7"}');
  });
  const proxy = await startProxy({ target: { host: '127.0.0.1', port: await listen(server) } });
  t.after(async () => {
    await proxy.close();
    server.close();
  });
  const client = connect({ port: proxy.port, host: '127.0.0.1' });
  proxy.next({ kind: 'lose-answer', afterAnswerBytes: 30, when: sends('POST ') });
  client.write('POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n');
  const half = await buffer(client);
  assert.equal(half.length, 30);
  assert.match(half.toString(), /^HTTP\/1\.1 200 OK\r\n/);
  assert.equal(served, 1);
  assert.equal(proxy.counts.fired['lose-answer'], 1);
});

for (const direction of ['to-server', 'to-client'] as const) {
  test(`reset in the middle of a frame ${direction}`, async (t) => {
    const { proxy, open, accepted, received } = await setup(t, echo);
    const client = await open();
    await roundTrip(client, 'before');
    proxy.all({ kind: 'reset', direction, afterBytes: 10 });
    const ends = [client, accepted[0]!].map(endOf);
    client.write('four');
    await once(accepted[0]!, 'data');
    client.write('eleven more');
    assert.deepEqual(await Promise.all(ends), ['ECONNRESET', 'ECONNRESET']);
    assert.equal(proxy.counts.fired.reset, 1);
    assert.equal(proxy.counts.bytes[direction], 'before'.length + 10);
    assert.equal(received().slice(6), direction === 'to-server' ? 'foureleven' : 'foureleven more');
  });
}

test('slow drip: all of it comes, in order, in many pieces; healing lets the rest flow at once', async (t) => {
  const { proxy, open } = await setup(t, echo);
  const client = await open();
  proxy.all({ kind: 'drip', bytes: 3, intervalMs: 1 });
  const text = 'drop by drop by drop by drop';
  const began = performance.now();
  assert.equal(await roundTrip(client, text), text);
  assert.ok(performance.now() - began >= 9, 'ten pieces, nine intervals at least');
  assert.equal(proxy.counts.fired.drip, 1);

  proxy.all({ kind: 'drip', bytes: 1, intervalMs: 60_000 });
  const answer = roundTrip(client, text);
  await eventually(() => proxy.counts.bytes['to-client'] === text.length + 1, 'the first drop came back');
  proxy.heal();
  assert.equal(await answer, text);
  assert.equal(proxy.counts.fired.drip, 2);
});

test('a fault that does not fire is told, with what did happen', async (t) => {
  const { proxy, open } = await setup(t, echo);
  await roundTrip(await open(), 'hello');
  proxy.next({ kind: 'cut', when: sends('never said') });
  await assert.rejects(
    proxy.fired('cut', { timeoutMs: 20 }),
    /within 0.02 s the fault cut did not fire 1 times: .*"connections":1/,
  );
});
