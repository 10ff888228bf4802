/**
 * What was asked and what came back, for a judge who trusts nobody's counters. Lines of fields with tabs
 * between them, which COPY can load; the first line, behind `# `, is JSON that says what they are.
 *
 *   i  invocation  us  door  operation  key  attempt  url  account_id  amount_cents     before it is sent
 *   o  invocation  us  ok|fail|unknown  status  hash  reason                            when it is over
 *
 * ok = a 2xx answer; fail = surely without effect (4xx, or never sent); unknown = anything else. An
 * invocation without an outcome is unknown too. `us` counts from the start that the first line names.
 *
 * `flush` comes before the requests go out, so that even after SIGKILL none was sent that the file does
 * not know: what write() has taken is in the page cache. It does not outlive a crash of the machine.
 */
import { closeSync, openSync, writeSync } from 'node:fs';

export type Verdict = 'ok' | 'fail' | 'unknown';

export interface Invocation {
  number: number;
  atMs: number;
  door: 'http';
  operation: 'create';
  key: string;
  attempt: number;
  url: number;
  accountId: number;
  amountCents: number;
}

export interface Ledger {
  /** The first line: what the lines are, and when the clock started. */
  begin(facts: object): void;
  invoke(invocation: Invocation): void;
  /** `status` 0 and an empty hash where there was no answer; the reason says why. */
  outcome(number: number, atMs: number, verdict: Verdict, status: number, hash: string, reason: string): void;
  /** Hands everything to the kernel. */
  flush(): void;
  close(): void;
}

/** For benches, where nobody judges. */
export const noLedger: Ledger = { begin() {}, invoke() {}, outcome() {}, flush() {}, close() {} };

const bufferBytes = 1 << 20;
/** A line is far shorter; the text of a reason is ours. */
const longestLine = 512;

/** Refuses a file that exists: it is evidence. */
export function openLedger(path: string): Ledger {
  const file = openSync(path, 'wx');
  const buffer = Buffer.alloc(bufferBytes);
  let size = 0;
  const flush = (): void => {
    let written = 0;
    while (written < size) written += writeSync(file, buffer, written, size - written);
    size = 0;
  };
  const line = (text: string): void => {
    if (size + longestLine > bufferBytes) flush();
    size += buffer.write(text, size, 'latin1');
  };
  return {
    begin: (facts) => {
      size += buffer.write(`# ${JSON.stringify({ ledger: 1, ...facts })}\n`, size, 'latin1');
    },
    invoke: ({ number, atMs, door, operation, key, attempt, url, accountId, amountCents }) =>
      line(
        `i\t${number}\t${us(atMs)}\t${door}\t${operation}\t${key}\t${attempt}\t${url}\t${accountId}\t${amountCents}\n`,
      ),
    outcome: (number, atMs, verdict, status, hash, reason) =>
      line(`o\t${number}\t${us(atMs)}\t${verdict}\t${status}\t${hash}\t${reason}\n`),
    flush,
    close() {
      flush();
      closeSync(file);
    },
  };
}

function us(ms: number): number {
  return Math.round(ms * 1_000);
}
