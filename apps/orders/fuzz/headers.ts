import type { Random } from './random.ts';

/** Headers that change nothing about what is asked for. */
export function noise(random: Random): string[] {
  const lines: string[] = [];
  while (random.chance(0.3)) lines.push(random.pick(noisy)(random));
  return lines;
}

const noisy: readonly ((random: Random) => string)[] = [
  () => 'accept: */*',
  () => 'accept: \xff\xfe;q=nan',
  () => 'accept-encoding: gzip, br, *;q=0',
  () => 'accept-version: 999.x',
  () => 'content-encoding: gzip',
  () => 'content-language: x',
  () => 'cookie: a=b; __proto__=c; a=\xff',
  () => 'date: yesterday',
  () => 'forwarded: for="[::1]";host=evil',
  () => 'x-forwarded-host: evil',
  () => 'x-forwarded-for: 1.1.1.1, \x80',
  () => 'x-http-method-override: DELETE',
  () => 'if-match: *',
  () => 'if-none-match: "1"',
  () => 'range: bytes=0-',
  () => 'te: trailers, deflate',
  () => 'trailer: idempotency-key',
  () => 'traceparent: 00-zz-zz-zz',
  () => '__proto__: x',
  () => 'constructor: x',
  () => 'hasownproperty: x',
  () => 'idempotency_key: other',
  () => 'x-idempotency-key: other',
  () => 'idempotency-key2: other',
  () => 'x-empty:',
  (random) => `x-long: ${random.text('abc', random.int(6_000))}`,
  (random) => `${random.text("abc!#$%&'*+-.^_`|~09", 1 + random.int(40))}: x`,
  (random) => Array.from({ length: random.int(200) }, (_, n) => `x-${n}: ${n}`).join('\r\n') || 'x-none: x',
];

/** None of them names a tenant. */
export function nastyAuthorization(random: Random): string[] {
  return random.pick([
    [],
    [''],
    ['Bearer'],
    ['Bearer '],
    ['Bearer  two-blanks'],
    ['Bearer a b'],
    ['Bearer a,b'],
    ['Bearer \xff'],
    ['Bearer tenant-0;'],
    ['Bearer "tenant-0"'],
    ["Bearer tenant-0'--"],
    ['Bearer tenant-0/../tenant-1'],
    [`Bearer ${'a'.repeat(129)}`],
    [`Bearer ${'a'.repeat(8_000)}`],
    ['BearerX tenant-0'],
    ['Basic dGVuYW50LTA6'],
    ['Digest username="x"'],
    ['tenant-0'],
    ['Bearer\ttenant-0'],
    [random.text('\x80\xff !~"\\', 1 + random.int(60))],
  ]);
}

/** None of them is JSON's. */
export function nastyContentType(random: Random): string[] {
  return random.pick([
    [],
    [''],
    ['text/plain'],
    ['application/jsonx'],
    ['application/json-patch+json'],
    ['application/problem+json'],
    ['application/x-www-form-urlencoded'],
    ['multipart/form-data; boundary=x'],
    ['application'],
    ['/'],
    ['application/'],
    ['/json'],
    ['application//json'],
    ['application/json, text/plain'],
    [', application/json'],
    ['"application/json"'],
    ['application\\json'],
    ['\xff\xfe'],
    ['*/*'],
    ['__proto__'],
    [`text/${'x'.repeat(8_000)}`],
    [random.text('abc/;=, "\x80', 1 + random.int(60))],
  ]);
}
