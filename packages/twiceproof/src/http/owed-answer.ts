import type { ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';

/**
 * For bytes that are no HTTP. If a request before them on the same connection still waits for its answer, the client
 * would take a refusal for that, though the request is being carried out. So it gets none, and asks again. Answers
 * whether that was so. (`_httpMessage` is how Node itself knows whose answer is next.)
 */
export function closeWhereAnAnswerIsOwed(socket: Duplex & { _httpMessage?: ServerResponse | null }): boolean {
  const { _httpMessage: next } = socket;
  const isOwed = next?.req.complete === true || next?.headersSent === true;
  if (isOwed) socket.destroy();
  return isOwed;
}
