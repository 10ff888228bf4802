/**
 * What was asked and what came back, for a judge who trusts nobody's counters. Lines of fields with tabs
 * between them, which COPY can load; the first line, behind `# `, is JSON that says what they are.
 *
 *   i  invocation us door operation key attempt target order_id account_id amount_cents status    before it is sent
 *   o  invocation us verdict code hash order_id version status reason                              when it is over
 *
 * `us` counts from the start that the first line names, and `target` from 0 in its list of targets. A field that
 * has nothing to say is \N. An `i` has an account and an amount if it is a create, an order and a status if it is a
 * change. verdict.ts says what ok, fail and unknown mean; an invocation without an outcome is unknown too. `code` is
 * the status of HTTP or the code of gRPC, and `hash` of what a client can see of the answer; `order_id`, `version` and
 * `status` are what it named, and the version of a new order is 1.
 *
 * `flush` comes before the requests go out, so that even after SIGKILL none was sent that the file does
 * not know: what write() has taken is in the page cache. It does not outlive a crash of the machine.
 */
import { closeSync, openSync, writeSync } from 'node:fs';
import type { DoorKind, Reason } from './line.ts';
import type { Send } from './plan.ts';
import type { Verdict } from './verdict.ts';

export interface Invocation {
  number: number;
  atMs: number;
  door: DoorKind;
  operation: Send['operation'];
  key: string;
  attempt: number;
  target: number;
  orderId: string | undefined;
  accountId: number | undefined;
  amountCents: number | undefined;
  status: string | undefined;
}

export interface Outcome {
  number: number;
  atMs: number;
  verdict: Verdict;
  /** These five are undefined where there was no answer; the reason says why. */
  code: number | undefined;
  hash: string | undefined;
  orderId: string | undefined;
  version: number | undefined;
  status: string | undefined;
  reason: Reason;
}

export interface Ledger {
  /** The first line: what the lines are, and when the clock started. */
  begin(facts: object): void;
  invoke(invocation: Invocation): void;
  outcome(outcome: Outcome): void;
  /** Hands everything to the kernel. */
  flush(): void;
  close(): void;
}

/** For benches, where nobody judges. */
export const noLedger: Ledger = { begin() {}, invoke() {}, outcome() {}, flush() {}, close() {} };

const nothing = '\\N';
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
      size += buffer.write(`# ${JSON.stringify({ ledger: 3, ...facts })}\n`, size, 'latin1');
    },
    invoke: ({ number, atMs, door, operation, key, attempt, target, orderId, accountId, amountCents, status }) =>
      line(
        `i\t${number}\t${us(atMs)}\t${door}\t${operation}\t${key}\t${attempt}\t${target}` +
          `\t${orderId ?? nothing}\t${accountId ?? nothing}\t${amountCents ?? nothing}\t${status ?? nothing}\n`,
      ),
    outcome: ({ number, atMs, verdict, code, hash, orderId, version, status, reason }) =>
      line(
        `o\t${number}\t${us(atMs)}\t${verdict}\t${code ?? nothing}\t${hash ?? nothing}` +
          `\t${orderId ?? nothing}\t${version ?? nothing}\t${status ?? nothing}\t${reason}\n`,
      ),
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
