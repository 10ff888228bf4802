import { bodyLimitBytes, validCreate, writeCreate } from './bodies.ts';
import type { Random } from './random.ts';
import { refusedTenant, requestBytes, tenants, type Case } from './request.ts';

const order = '{"account_id":1,"amount_cents":1}';
const unique = (random: Random): string => `${refusedTenant}-${random.int(1e9)}`;

/** Requests that are no HTTP, or that two readers could read in two ways. */
export function unreadableRequest(random: Random): Case {
  const key = unique(random);
  const base = [
    `host: x`,
    `authorization: Bearer ${refusedTenant}`,
    `idempotency-key: ${key}`,
    'content-type: application/json',
  ];
  const first = 'POST /orders HTTP/1.1';
  const whole = (line: string, lines: readonly string[], body: string): string =>
    `${[line, ...lines].join('\r\n')}\r\n\r\n${body}`;
  const length = `content-length: ${order.length}`;
  const [about, bytes] = random.pick<readonly [string, string]>([
    ...badLengths.map((text) => [`length ${text}`, whole(first, [...base, `content-length: ${text}`], order)] as const),
    ...badEncodings.map(
      (text) =>
        [
          `encoding ${text}`,
          whole(first, [...base, `transfer-encoding: ${text}`], `21\r\n${order}\r\n0\r\n\r\n`),
        ] as const,
    ),
    ['length twice', whole(first, [...base, length, length], order)],
    ['two lengths', whole(first, [...base, length, 'content-length: 3'], order)],
    ['length and chunks', whole(first, [...base, length, 'transfer-encoding: chunked'], `21\r\n${order}\r\n0\r\n\r\n`)],
    ...badChunks.map(
      (text) => [`chunk ${JSON.stringify(text)}`, whole(first, [...base, 'transfer-encoding: chunked'], text)] as const,
    ),
    ...badFirstLines.map((text) => [`line ${JSON.stringify(text)}`, whole(text, [...base, length], order)] as const),
    ...badHeaderLines.map(
      (text) => [`header ${JSON.stringify(text)}`, whole(first, [...base, text, length], order)] as const,
    ),
    ['no host', whole(first, [...base.slice(1), length], order)],
    ['lines end with LF', [first, ...base, length, '', order].join('\n')],
    ['lines end with CR', [first, ...base, length, '', order].join('\r')],
    ['TLS', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
    ['HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    ['noise', random.text('\0\x01 \r\nABC/:\xff\x80', 1 + random.int(300))],
  ]);
  return { bytes, about, expected: { kind: 'refused' }, alone: true, ...(random.chance(0.5) && { cut: true }) };
}

const badLengths = [
  '',
  '-1',
  '+33',
  '0x21',
  '33 33',
  '33, 33',
  '33;',
  '3e1',
  'NaN',
  '99999999999999999999',
  ' ',
  '33\0',
  '33a',
];
const badEncodings = [
  'identity',
  'chunked, identity',
  'xchunked',
  'chunked;q=1',
  ', chunked,',
  '"chunked"',
  'chunked\0',
  'gzip',
];
const badChunks = [
  'x\r\n',
  '-1\r\n',
  '21;\0\r\n',
  'ffffffffffffffffff\r\n',
  '21\n',
  '0x21\r\n',
  '1\r\nab\r\n',
  ' 21\r\n',
  '\r\n',
];
const badFirstLines = [
  [
    'POST /orders HTTP/3.0',
    'POST /orders HTTP/1.1 ',
    'POST /orders HTTP/1.',
    'post /orders HTTP/1.1',
    'POST /ord\0ers HTTP/1.1',
    'POST /or ders HTTP/1.1',
    'POST\t/orders HTTP/1.1',
    'FOO / HTTP/1.1',
  ],
  [
    ' POST /orders HTTP/1.1',
    'POST /orders HTTPS/1.1',
    'POST',
    '',
    '\0',
    'CONNECT evil:443 HTTP/1.1',
    'POST /orders http/1.1',
  ],
].flat();
const badHeaderLines = [
  [
    'a\0b: c',
    'a: b\0c',
    'a: b\rc',
    'a: b\nidempotency-key: c',
    'a : b',
    ' a: b',
    ': b',
    'a',
    'a\x7f: b',
    'a: \x7f',
    'a: \x01',
  ],
  ['\xff: b', 'a(b): c', 'idempotency-key : b', 'idempotency-key\t: b', 'a: b\r\n folded', 'a"b: c', 'a: b\r\r\n'],
].flat();

/** Not what the RFCs say, but Node can read it. */
const lenient = [
  'POST /orders',
  'POST /orders HTTP/0.9',
  'POST  /orders HTTP/1.1',
  'POST http://evil/orders HTTP/1.1',
  'POST /orders#x HTTP/1.1',
];
const manyLines = (count: number): string[] => Array.from({ length: count }, () => 'a:');

/** Readable, but something asks for more than an answer: each has its connection to itself. */
export function oddRequest(random: Random): Case {
  const tenant = random.pick(tenants);
  const key = `odd-${random.int(1e9)}`;
  const lines = [`authorization: Bearer ${tenant}`, `idempotency-key: ${key}`, 'content-type: application/json'];
  const length = `content-length: ${order.length}`;
  const text = (more: readonly string[], version = 'HTTP/1.1'): string =>
    `${[`POST /orders ${version}`, 'host: x', ...lines, ...more, length].join('\r\n')}\r\n\r\n${order}`;
  const wanted = { tenant, operation: 'orders.create', key, command: '1 1' } as const;
  const right = (about: string, bytes: string): Case => ({
    bytes,
    about,
    alone: true,
    expected: { kind: 'wanted', wanted },
  });
  const open = (about: string, bytes: string): Case => ({ ...right(about, bytes), expected: { kind: 'open' } });
  const refused = (about: string, bytes: string, as?: string): Case => ({
    ...right(about, bytes.replace(tenant, refusedTenant)),
    expected: { kind: 'refused', ...(as !== undefined && { as }) },
  });
  return random.pick<() => Case>([
    () => right('HTTP/1.0', text([], 'HTTP/1.0')),
    () => right('close', text(['connection: close'])),
    () => right('upgrade', text(['connection: upgrade', 'upgrade: websocket'])),
    () => right('h2c', text(['connection: upgrade, http2-settings', 'upgrade: h2c', 'http2-settings: AAMAAABk'])),
    () => right('100-continue', text(['expect: 100-continue'])),
    () => right('blank lines first', `\r\n\r\n${text([])}`),
    () => right('many headers', text(manyLines(900))),
    // The second key comes behind so many lines that a reader might have stopped listening.
    () =>
      refused('a second key behind many headers', text([...manyLines(900), 'idempotency-key: other']), 'key-malformed'),
    () => refused('too many headers', text(manyLines(2_500))),
    () => right('a strange host', text([]).replace('host: x', `host: ${random.text('\xff/@:[]?# ', 12)}`)),
    () => open('another expectation', text(['expect: 200-ok'])),
    () => open('two authorizations', text(['authorization: Bearer tenant-0'])),
    () => open('two types', text(['content-type: text/plain'])),
    ...lenient.map((line) => () => open(line, text([]).replace(/^.*/, line))),
  ])();
}

/** A right request, in which some bytes are others, or missing, or twice. */
export function mutatedRequest(random: Random): Case {
  const { bytes: body } = writeCreate(random, validCreate(random));
  let bytes = requestBytes(random, { tenant: 'mutated', keyLines: [`mutated-${random.int(1e9)}`], body });
  do {
    const at = random.int(bytes.length);
    const size = 1 + random.int(4);
    const middle = random.pick<() => string>([
      () => random.text('\0\r\n\t "\\:;,{}[]\x7f\x80\xff0aA/%', size),
      () => '',
      () => bytes.slice(at, at + 2 * size),
      () => bytes.slice(at, at + size) + bytes.slice(at, at + size),
    ])();
    bytes = bytes.slice(0, at) + middle + bytes.slice(at + size);
  } while (random.chance(0.4));
  return { bytes, about: 'mutated', expected: { kind: 'open' }, alone: true };
}

/** At the limits, and beyond them. */
export function largeRequest(random: Random): Case {
  const keyLines = [unique(random)];
  const refused = (about: string, bytes: string, as?: string): Case => ({
    bytes,
    about,
    alone: true,
    expected: { kind: 'refused', ...(as !== undefined && { as }) },
  });
  const padded = (size: number): string => order.padEnd(size);
  return random.pick<() => Case>([
    () => refused('body + 1', requestBytes(random, { keyLines, body: padded(bodyLimitBytes + 1) }), 'body-too-large'),
    () => refused('large body', requestBytes(random, { keyLines, body: padded(100_000) }), 'body-too-large'),
    () =>
      refused('large header', requestBytes(random, { keyLines, headers: [`x: ${'x'.repeat(20_000)}`], body: order })),
    () => refused('large key', requestBytes(random, { keyLines: ['k'.repeat(20_000)], body: order })),
    () => refused('large path', requestBytes(random, { path: `/orders/${'a'.repeat(20_000)}`, keyLines, body: order })),
    () => refused('many large headers', requestBytes(random, { keyLines, headers: manyHeaders, body: order })),
    () => ({
      ...refused(
        'half a body',
        requestBytes(random, { keyLines, body: padded(10_000) }).slice(0, -random.int(9_000) - 1),
      ),
      cut: true,
    }),
    () => ({ ...refused('half a head', requestBytes(random, { keyLines }).slice(0, 20 + random.int(60))), cut: true }),
  ])();
}

const manyHeaders = Array.from({ length: 100 }, (_, n) => `x-${n}: ${'x'.repeat(200)}`);
