/**
 * What the load generator has written down: lines of fields with tabs between them, `i` before a request went out, `o`
 * when it was over, and a first line that says what they are. COPY takes them as they are. A file that is still being
 * written, or whose writer was killed, ends anywhere: a last line without its end does not count.
 */
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { Undecided } from './undecided.ts';

export interface Ledger {
  path: string;
  /** Whose keys they are. */
  principal: string;
  /** From which the microseconds of the lines count. */
  startMs: number;
  /** As long as it was when it was opened. Every look at it ends there, or it would know an answer without its request. */
  bytes: number;
}

const headBytes = 64 * 1024;
const readBytes = 1024 * 1024;
const newline = 0x0a;

export async function openLedger(path: string): Promise<Ledger> {
  const file = await open(path);
  try {
    const { size: bytes } = await file.stat();
    const { buffer, bytesRead } = await file.read(Buffer.alloc(headBytes), 0, headBytes, 0);
    const head = buffer.toString('utf8', 0, bytesRead);
    const { ledger, principal, startMs } = factsOf(head.slice(0, head.indexOf('\n')));
    if (ledger !== 3) throw new Undecided(`${path} is not a ledger of version 3`);
    if (typeof principal !== 'string' || typeof startMs !== 'number') {
      throw new Undecided(`${path} does not say in its first line whose it is, or when it began`);
    }
    return { path, principal, startMs, bytes };
  } finally {
    await file.close();
  }
}

function factsOf(line: string): Record<string, unknown> {
  try {
    const facts = JSON.parse(line.replace(/^# /, '')) as unknown;
    return typeof facts === 'object' && facts !== null ? (facts as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** The lines of one kind, many in a chunk. */
export async function* linesOf({ path, bytes }: Ledger, kind: 'i' | 'o'): AsyncGenerator<Buffer> {
  if (bytes === 0) return;
  const wanted = kind.charCodeAt(0);
  let rest: Buffer = Buffer.alloc(0);
  for await (const read of createReadStream(path, { end: bytes - 1, highWaterMark: readBytes })) {
    const text = rest.length > 0 ? Buffer.concat([rest, read as Buffer]) : (read as Buffer);
    const lines = Buffer.allocUnsafe(text.length);
    let used = 0;
    let start = 0;
    for (let end = text.indexOf(newline); end !== -1; end = text.indexOf(newline, start)) {
      if (text[start] === wanted) used += text.copy(lines, used, start, end + 1);
      start = end + 1;
    }
    rest = text.subarray(start);
    if (used > 0) yield lines.subarray(0, used);
  }
}
