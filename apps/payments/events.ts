import type { ReceivedMessage } from 'twiceproof/wire';

export interface OrderEvent {
  msg_id: string;
  order_id: string;
  status: string;
  version: number;
  /** Of a new order: what is to be charged. */
  amount_cents?: number;
}

/** The message can never be processed as it is: it is held, with this reason. */
export class InvalidEvent extends Error {
  override name = 'InvalidEvent';
}

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const maxInt = 2_147_483_647;

/** Undefined where the type is none of ours. */
export function readEvent({ id, type, aggregateId, payload }: ReceivedMessage): OrderEvent | undefined {
  if (type !== 'order.created' && type !== 'order.status_changed') return undefined;
  const { order_id, status, version, amount_cents } = fieldsOf(payload, type);
  const isNew = type === 'order.created';
  const problems = [
    ...(typeof order_id === 'string' && uuid.test(order_id) ? [] : ['order_id is not a UUID']),
    ...(order_id === aggregateId ? [] : ['order_id is not the key of the record']),
    ...(typeof status === 'string' && status !== '' && !status.includes('\0') ? [] : ['status is not a text']),
    ...(isCount(version, maxInt) ? [] : [`version is not a whole number from 1 to ${maxInt}`]),
    ...(!isNew || isCount(amount_cents, Number.MAX_SAFE_INTEGER) ? [] : ['amount_cents is not a whole number above 0']),
  ];
  if (problems.length > 0) throw new InvalidEvent(`${type}: ${problems.join('; ')}`);
  const event = { msg_id: id, order_id: order_id as string, status: status as string, version: version as number };
  return isNew ? { ...event, amount_cents: amount_cents as number } : event;
}

function fieldsOf(payload: Uint8Array, type: string): Record<string, unknown> {
  try {
    const parsed = JSON.parse(Buffer.from(payload).toString()) as unknown;
    if (typeof parsed === 'object' && parsed !== null) return parsed as Record<string, unknown>;
  } catch {
    // Its text may be a customer's, so it is not repeated.
  }
  throw new InvalidEvent(`${type}: the payload is not a JSON object`);
}

function isCount(value: unknown, max: number): boolean {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= max;
}
