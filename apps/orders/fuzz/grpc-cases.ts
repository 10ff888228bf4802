import { gzipSync } from 'node:zlib';
import type { OutgoingHttpHeaders } from 'node:http2';
import { commandOf, statuses, validCreate, type Create } from './bodies.ts';
import type { Call } from './grpc-client.ts';
import { nastyAuthorization } from './headers.ts';
import { meaningOf, nastyKeyLines, validKey, writeKey } from './keys.ts';
import type { Random } from './random.ts';
import { refusedTenant, tenants, type Expected, type Wanted } from './request.ts';

export interface GrpcCase {
  call: Call;
  expected: Expected;
  about: string;
}

const service = '/twiceproof.orders.v1.Orders';

function headersOf(tenant: string, key: string, more: OutgoingHttpHeaders = {}): OutgoingHttpHeaders {
  return {
    ':path': `${service}/Create`,
    'content-type': 'application/grpc',
    te: 'trailers',
    authorization: `Bearer ${tenant}`,
    'idempotency-key': key,
    ...more,
  };
}

/** With the prefix of gRPC: whether it is compressed, and how long it is. */
function framed(message: Buffer, { compressed = 0, length = message.length } = {}): Buffer {
  const prefix = Buffer.alloc(5);
  prefix[0] = compressed;
  prefix.writeUInt32BE(length, 1);
  return Buffer.concat([prefix, message]);
}

function varint(value: bigint, padding = 0): number[] {
  const bytes: number[] = [];
  for (let left = BigInt.asUintN(64, value); ; left >>= 7n) {
    if (left < 128n && padding === 0) return [...bytes, Number(left)];
    bytes.push(Number(left & 127n) | 128);
    if (left < 128n) return [...bytes, ...Array<number>(padding - 1).fill(128), 0];
  }
}

function field(number: number, value: bigint, padding = 0): number[] {
  return [...varint(BigInt(number << 3)), ...varint(value, padding)];
}

function textField(number: number, text: string): number[] {
  const bytes = Buffer.from(text, 'latin1');
  return [...varint(BigInt((number << 3) | 2)), ...varint(BigInt(bytes.length)), ...bytes];
}

/** One command, in one of the many messages that say it. */
function writeCreate(random: Random, { account, amount }: Create): Buffer {
  const fields = [
    // Of two fields with one number the last one counts; one that nobody knows counts for nothing.
    ...(random.chance(0.1) ? [field(1, 5n)] : []),
    field(1, BigInt(account), random.chance(0.1) ? 1 : 0),
    field(2, BigInt(amount)),
    ...(random.chance(0.1) ? [textField(15, 'unknown \xff')] : []),
    ...(random.chance(0.1) ? [field(99, -1n)] : []),
  ];
  if (random.chance(0.2) && fields.length === 2) fields.reverse();
  return Buffer.from(fields.flat());
}

/** An order that is there. */
export interface Known {
  tenant: string;
  orderId: string;
}

export function nextGrpcCase(random: Random, known: readonly Known[]): GrpcCase {
  const makers = [right, right, right, again, keyCase, keyCase, messageCase, messageCase, headerCase, statusCase];
  return random.pick(makers)(random, known);
}

function wantedCase(random: Random, wanted: Wanted, create: Create, about: string): GrpcCase {
  const message = writeCreate(random, create);
  const zipped = random.chance(0.1);
  const key = writeKey(random, wanted.key).trim();
  const call = {
    headers: headersOf(wanted.tenant, key, zipped ? { 'grpc-encoding': 'gzip' } : {}),
    data: zipped ? framed(gzipSync(message), { compressed: 1 }) : framed(message),
  };
  return { call, about, expected: { kind: 'wanted', wanted } };
}

function right(random: Random): GrpcCase {
  const create = validCreate(random);
  const wanted = {
    tenant: random.pick(tenants),
    operation: 'orders.create',
    key: validKey(random),
    command: commandOf(create),
  } as const;
  return wantedCase(random, wanted, create, 'create');
}

/** Few keys and few commands, so that most come again. */
function again(random: Random): GrpcCase {
  const create = { account: 1 + random.int(2), amount: 7 };
  const key = `again-${random.int(20)}`;
  const wanted = { tenant: random.pick(tenants), operation: 'orders.create', key, command: commandOf(create) } as const;
  return wantedCase(random, wanted, create, 'again');
}

function keyCase(random: Random): GrpcCase {
  const lines = nastyKeyLines(random).map((line) => line.replaceAll(/^[ \t]+|[ \t]+$/g, ''));
  const about = `key ${JSON.stringify(lines).slice(0, 200)}`;
  const meaning = meaningOf(lines);
  const create = validCreate(random);
  const data = framed(writeCreate(random, create));
  const tenant = typeof meaning === 'object' ? random.pick(tenants) : refusedTenant;
  const { 'idempotency-key': _, ...others } = headersOf(tenant, '');
  const headers =
    lines.length === 0 ? others : { ...others, 'idempotency-key': lines.length > 1 ? [...lines] : lines[0] };
  if (typeof meaning !== 'object') return { call: { headers, data }, about, expected: { kind: 'refused' } };
  const wanted = { tenant, operation: 'orders.create', key: meaning.key, command: commandOf(create) } as const;
  return { call: { headers, data }, about, expected: { kind: 'wanted', wanted } };
}

const uniqueKey = (random: Random): string => `${refusedTenant}-${random.int(1e9)}`;

/** Messages that are wrong, and bytes that are no message. */
function messageCase(random: Random): GrpcCase {
  const one = field(1, 1n);
  const two = field(2, 1n);
  const whole = Buffer.from([...one, ...two]);
  const invalid = [
    [],
    one,
    two,
    [...field(1, 0n), ...two],
    [...field(1, -1n), ...two],
    [...field(1, 2n ** 53n), ...two],
    [...field(1, 2n ** 63n), ...two],
    [...one, ...field(2, 1_000_000_000_001n)],
    [...one, ...field(2, -(2n ** 63n))],
  ].map((bytes) => framed(Buffer.from(bytes)));
  const unreadable = [
    Buffer.alloc(0),
    Buffer.from([0, 0, 0]),
    framed(whole, { length: whole.length + 5 }),
    framed(whole, { length: 2 ** 32 - 1 }),
    framed(Buffer.from([0x08, 0xff])),
    framed(Buffer.alloc(17_000, 0x08)),
    Buffer.concat([framed(whole), framed(whole)]),
  ];
  const more = random.pick([{}, {}, {}, { 'grpc-encoding': random.pick(['gzip', 'deflate', 'x', '', 'identity']) }]);
  const headers = headersOf(refusedTenant, uniqueKey(random), more);
  if (random.chance(0.6)) {
    const data = random.pick([...invalid, ...unreadable]);
    return {
      call: { headers, data },
      about: `message ${data.toString('hex').slice(0, 60)}`,
      expected: { kind: 'refused' },
    };
  }
  // What grpc-js and protobufjs make of these is up to them, as long as they make something of it.
  const lenient = [
    framed(whole, { compressed: 1 }),
    framed(whole, { compressed: 255 }),
    framed(Buffer.from([...one, 0x12, 0xff, 0xff, 0xff, 0xff, 0x0f])),
  ];
  const noise = Buffer.from(Array.from({ length: random.int(40) }, () => random.int(256)));
  const data = random.pick([framed(noise), framed(noise), noise, ...lenient]);
  const open = headersOf('noise', `noise-${random.int(1e9)}`);
  return { call: { headers: open, data }, about: `noise ${data.toString('hex')}`, expected: { kind: 'open' } };
}

function headerCase(random: Random): GrpcCase {
  const data = framed(Buffer.from([...field(1, 1n), ...field(2, 1n)]));
  const key = uniqueKey(random);
  const refused = (headers: OutgoingHttpHeaders, about: string): GrpcCase => ({
    call: { headers, data },
    about,
    expected: { kind: 'refused' },
  });
  switch (random.int(4)) {
    case 0: {
      const values = nastyAuthorization(random).map((value) => value.trim());
      const { authorization: _, ...rest } = headersOf('', key);
      return refused(
        values.length === 0 ? rest : { ...rest, authorization: values },
        `authorization ${values.join('|')}`,
      );
    }
    case 1: {
      const path = random.pick([
        '/',
        '/x',
        `${service}/`,
        `${service}/create`,
        `${service}/Create/`,
        `${service}/Create?x`,
        '//',
        '/__proto__/x',
        '*',
        `${service}/%43reate`,
        `/${'x'.repeat(9_000)}`,
      ]);
      return refused(headersOf(refusedTenant, key, { ':path': path }), `path ${path}`);
    }
    case 2: {
      const type = random.pick(['text/plain', '', 'application/json', 'xapplication/grpc', 'application']);
      return refused(headersOf(refusedTenant, key, { 'content-type': type }), `content-type ${type}`);
    }
    default: {
      const [name, value] = random.pick<readonly [string, string]>([
        [
          'grpc-timeout',
          random.pick(['', '1', 'S', '-1S', '0n', '1n', '99999999H', '999999999H', 'abc', '1S1', '\xff']),
        ],
        ['x-bin', random.pick(['', '!', 'AA', '\xff', 'A'.repeat(8_000)])],
        ['idempotency-key-bin', 'AA=='],
        ['grpc-accept-encoding', 'gzip,\xff'],
        ['user-agent', '\xff'],
        ['x-long', 'x'.repeat(10_000)],
        ['__proto__x', 'x'],
      ]);
      const headers = headersOf('odd', `odd-${random.int(1e9)}`, { [name]: value });
      return { call: { headers, data }, about: `${name}: ${value.slice(0, 40)}`, expected: { kind: 'open' } };
    }
  }
}

function statusCase(random: Random, known: readonly Known[]): GrpcCase {
  const [nth, isKnown] = [random.int(1_000), random.chance(0.5)];
  const { tenant, orderId } = (isKnown && known[nth % known.length]) || {
    tenant: tenants[nth % tenants.length]!,
    orderId: '00000000-0000-4000-8000-000000000000',
  };
  const id = orderId + random.pick(['', '', '', '0', '\0', '\xff', "'"]);
  const status = random.pick([...statuses, ...statuses, 'PAID', '', '\0', '\xff', 'x'.repeat(10_000)]);
  const message = Buffer.from([...textField(1, id), ...textField(2, status)]);
  const isRight = id === orderId && (statuses as readonly string[]).includes(status);
  const key = `status-${random.int(1e9)}`;
  const headers = headersOf(isRight ? tenant : refusedTenant, key, { ':path': `${service}/SetStatus` });
  const call = { headers, data: framed(message) };
  if (!isRight)
    return { call, about: `status ${JSON.stringify([id, status.slice(0, 20)])}`, expected: { kind: 'refused' } };
  const wanted = { tenant, operation: 'orders.set-status', key, command: `${id} ${status}` } as const;
  return { call, about: 'status', expected: { kind: 'wanted', wanted } };
}
