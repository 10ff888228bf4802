/**
 * The bytes of one HTTP request. Everything has a fixed width, so a connection keeps one buffer for each kind
 * of request for its whole life, and writes only the key, the digits and the id into it.
 */
import { createIdentity, uuidLength, writeUuid, type Status } from './identity.ts';
import type { Asked } from './line.ts';
import type { Send } from './plan.ts';

export interface Request extends Asked {
  bytes: Buffer;
  /** Makes this the request for a key: the same key always gives the same bytes. */
  fill(send: Pick<Send, 'keyNumber' | 'operation' | 'order'>): void;
}

export function createRequest(host: string, principalHeader: string, seed: number, bornAtMs?: number): Request {
  const identity = createIdentity(seed, bornAtMs);
  const template = (path: string, body: string): Template => createTemplate(path, host, principalHeader, body);
  const create = template('/orders', `{"account_id":${accountDigits},"amount_cents":${amountDigits}}`);
  const accountAt = create.bytes.indexOf(accountDigits, create.bodyAt);
  const amountAt = create.bytes.lastIndexOf(amountDigits);
  const changes: Partial<Record<Status, Template>> = {};
  let current = create;
  let writtenHigh = 0;

  // In halves that are small integers, which are divided fast; and the upper one hardly ever changes.
  const writeAccount = (accountId: number): void => {
    const high = Math.floor(accountId / 1e8);
    if (high !== writtenHigh) writeDigits(create.bytes, accountAt, 8, high);
    writtenHigh = high;
    writeDigits(create.bytes, accountAt + 8, 8, accountId - high * 1e8);
  };

  const request: Request = {
    bytes: create.bytes,
    accountId: 0,
    amountCents: 0,
    status: identity.status,
    fill({ keyNumber, operation, order }) {
      identity.become(keyNumber);
      if (operation === 'create') {
        current = create;
        request.accountId = identity.accountId;
        request.amountCents = identity.amountCents;
        writeAccount(identity.accountId);
        writeDigits(current.bytes, amountAt, amountDigits.length, identity.amountCents);
      } else {
        const { status } = identity;
        current = changes[status] ??= template(`/orders/${noUuid}/status`, JSON.stringify({ status }));
        request.status = status;
        current.bytes.write(order!.id!, orderAt, 'latin1');
      }
      request.bytes = current.bytes;
      writeUuid(current.bytes, current.keyAt, identity.words);
    },
    key: () => current.bytes.toString('latin1', current.keyAt, current.keyAt + uuidLength),
  };
  return request;
}

interface Template {
  bytes: Buffer;
  keyAt: number;
  bodyAt: number;
}

const noUuid = '0'.repeat(uuidLength);
const accountDigits = '0'.repeat(16);
const amountDigits = '0'.repeat(5);
const orderAt = 'POST /orders/'.length;

function createTemplate(path: string, host: string, principalHeader: string, body: string): Template {
  const head = [
    `POST ${path} HTTP/1.1`,
    `host: ${host}`,
    principalHeader,
    'content-type: application/json',
    `content-length: ${body.length}`,
    `idempotency-key: ${noUuid}`,
  ].join('\r\n');
  const bytes = Buffer.from(`${head}\r\n\r\n${body}`, 'latin1');
  return { bytes, keyAt: head.length - uuidLength, bodyAt: head.length + 4 };
}

function writeDigits(bytes: Buffer, at: number, width: number, value: number): void {
  let left = value | 0;
  for (let to = at + width - 1; to >= at; to--) {
    const rest = (left / 10) | 0;
    bytes[to] = 48 + left - rest * 10;
    left = rest;
  }
}
