/** HTTP on a bare socket, so that every byte is seen, and half an answer is not taken for one. */
import { connect } from 'node:net';
import { attemptTimeoutMs, type Answer, type Asked, type Attempt } from './asked.ts';

let asks = 0;

/** By turns on a connection that is to be kept and on one that is not: Orders has a way of its own for each. */
export async function askHttp(origin: string, asked: Asked): Promise<Attempt> {
  asks += 1;
  const raw = await exchange(origin, requestText(asked, asks % 2 === 0 ? 'close' : 'keep-alive'));
  const answer = wholeAnswer(raw);
  if (!answer) return { failure: `HTTP gave ${raw.length} bytes, which are no whole answer` };
  if (answer.status === 503) return { failure: raw };
  if (answer.status !== 201 && answer.status !== 200) throw new Error(`${asked.key} was answered by ${raw}`);
  const body = JSON.parse(answer.body) as Omit<Answer, 'text'>;
  return { answer: { ...body, text: raw.replaceAll(ofTheConnection, '') } };
}

/** All other headers are from end to end. */
const ofTheConnection = /^(?:date|connection|keep-alive): .*\r\n/gim;

function requestText(asked: Asked, connection: string): string {
  const isCreate = 'create' in asked;
  const path = isCreate ? '/orders' : `/orders/${asked.setStatus.order_id}/status`;
  const body = JSON.stringify(isCreate ? asked.create : { status: asked.setStatus.status });
  const lines = [
    `POST ${path} HTTP/1.1`,
    'host: localhost',
    `connection: ${connection}`,
    `authorization: Bearer ${asked.tenant}`,
    `idempotency-key: ${asked.key}`,
    'content-type: application/json',
    `content-length: ${body.length}`,
  ];
  return `${lines.join('\r\n')}\r\n\r\n${body}`;
}

/** What came until the answer was whole, or the connection was closed, by whomever and however. */
async function exchange(origin: string, request: string): Promise<string> {
  const { hostname, port } = new URL(origin);
  const socket = connect(Number(port), hostname);
  const pieces: Buffer[] = [];
  socket.setTimeout(attemptTimeoutMs, () => socket.destroy());
  socket.on('data', (piece) => {
    pieces.push(piece);
    if (wholeAnswer(Buffer.concat(pieces).toString('latin1'))) socket.end();
  });
  socket.on('error', () => {}); // The other side was killed; what has come by then is what counts.
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.write(request); // Not `end`: Node takes a half-closed connection for one that is gone.
  await closed;
  return Buffer.concat(pieces).toString('latin1');
}

function wholeAnswer(raw: string): { status: number; body: string } | undefined {
  const end = raw.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const head = raw.slice(0, end + 2);
  const body = raw.slice(end + 4);
  const length = /^content-length: (\d+)\r\n/im.exec(head)?.[1];
  if (length === undefined || body.length !== Number(length)) return undefined;
  return { status: Number(/^HTTP\/1\.1 (\d{3}) /.exec(head)?.[1]), body };
}
