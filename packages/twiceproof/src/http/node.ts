import { STATUS_CODES, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { arePointsArmed, point } from '../points.ts';
import { framed, type HttpAnswer } from './answer.ts';
import { keyLinesOf } from './door.ts';
import { closeWhereAnAnswerIsOwed } from './owed-answer.ts';
import type { ReadRequest } from './plain-request.ts';
import { problem } from './problem.ts';

export type { ReadRequest } from './plain-request.ts';
export { shortcut, type Shortcut } from './shortcut.ts';

/**
 * For a server of `node:http`, and for whatever hands its requests on unread. A client that goes away before its request
 * is whole has asked for nothing; after that it is carried out to its end, whether the client is still there or not.
 */
export function nodeListener(
  answer: (request: ReadRequest) => Promise<HttpAnswer>,
  { bodyLimitBytes = 1_048_576 }: { bodyLimitBytes?: number } = {},
): (message: IncomingMessage, response: ServerResponse) => void {
  return (message, response) => {
    const pieces: Buffer[] = [];
    let size = 0;
    message.on('data', (piece: Buffer) => {
      size += piece.length;
      if (size <= bodyLimitBytes) pieces.push(piece);
      // What else it sends is not waited for. One that is still sending may find the connection closed, and no answer.
      else if (!response.headersSent) writeAnswer(response.setHeader('connection', 'close'), problem('body-too-large'));
    });
    message.on('end', () => {
      if (size > bodyLimitBytes) return;
      const body = pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
      const { method = '', url = '', headers, rawHeaders } = message;
      answer({ method, url, headers, rawHeaders, body })
        .catch(() => problem('internal'))
        .then(async (answered) => {
          await point('http:committed');
          await writeInHalves(response, answered);
        })
        // Headers that cannot be written: the client gets no answer, and asks again.
        .catch(() => response.destroy());
    });
  };
}

/** The header lines as the client has sent them, for `httpOperation`. */
export function keyLines({ rawHeaders }: ReadRequest): string[] {
  return keyLinesOf(rawHeaders);
}

export function writeAnswer(response: ServerResponse, answer: HttpAnswer): void {
  const { headers, body } = framed(answer);
  // Both in one call: so the head and a body that is a text go out in one write.
  response.writeHead(answer.status, headers).end(body);
}

/** One write is one system call, so an answer goes out in two only where something may happen between them. */
async function writeInHalves(response: ServerResponse, answer: HttpAnswer): Promise<void> {
  const { headers, body } = framed(answer);
  if (!arePointsArmed || body.length < 2) return writeAnswer(response, answer);
  const bytes = Buffer.from(body);
  const middle = Math.ceil(bytes.byteLength / 2);
  response.writeHead(answer.status, headers).write(bytes.subarray(0, middle));
  await point('http:half-written');
  response.end(bytes.subarray(middle));
}

/** Answers what is no HTTP, where a client can tell what the answer is for. */
export function refuseUnreadable(server: Server): void {
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    if (closeWhereAnAnswerIsOwed(socket)) return;
    if (!socket.writable) {
      socket.destroy();
      return;
    }
    const status = statusOfCode[error.code ?? ''] ?? 400;
    const body = JSON.stringify({ type: 'about:blank', title: 'The request cannot be read.', status });
    const lines = [
      `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
      'connection: close',
      'content-type: application/problem+json',
      `content-length: ${body.length}`,
    ];
    socket.end(`${lines.join('\r\n')}\r\n\r\n${body}`);
  });
}

/** Of Node's own errors: all others are malformed. */
const statusOfCode: Readonly<Record<string, number>> = { HPE_HEADER_OVERFLOW: 431, ERR_HTTP_REQUEST_TIMEOUT: 408 };
