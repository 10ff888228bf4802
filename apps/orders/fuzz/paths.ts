import { validCreate, writeCreate } from './bodies.ts';
import { noise } from './headers.ts';
import type { Random } from './random.ts';
import { refusedTenant, requestBytes, tenants, type Case } from './request.ts';

/** Ids of orders that are none, as they stand in a path. */
const ids = [
  ['0', '-1', 'NaN', 'null', 'undefined', '__proto__', 'constructor', '%00', '%0d%0a', '%20', '%2e%2e', '..', '.'],
  ['%c0%80', '%ff', '%ed%a0%80', '%ud800', '%', '%2', '%zz', '%25', '%2f', '%2F..%2F', '*', '$1', "'", "';--", '{}'],
  ['00000000-0000-4000-8000-00000000000g', '00000000-0000-4000-8000-0000000000000', '00000000000040008000000000000000'],
  [
    '%7B00000000-0000-4000-8000-000000000000%7D',
    '00000000-0000-4000-8000-000000000000%00',
    '%F0%9F%94%91',
    '~',
    ';a=b',
  ],
  ['00000000-0000-4000-8000-000000000000%20', '00000000-0000-4000-8000-000000000000%0a', '\xe2\x82\xac', '\xff'],
].flat();
const elsewhere = [
  ['/', '/order', '/orders/', '//orders', '/orders//', '/ORDERS', '/orders/x/status/', '/orders/x/y', '/orders.json'],
  ['/orders;a=b', '/%', '/%zz', '/orders%00', '/orders%', '/../orders', '/./orders', '/metrics', '/livez', '*'],
  ['http://evil/', 'http://', 'orders', '/\xff', '/#x', '/__proto__', '/orders%2f', '/orders/%2e%2e/status'],
].flat();
const methods = ['GET', 'HEAD', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND', 'SEARCH', 'MKCOL', 'QUERY'];

export function nastyPath(random: Random): Case {
  const { bytes: body } = writeCreate(random, validCreate(random));
  const keyLines = [`${refusedTenant}-${random.int(1e9)}`];
  // Node takes no such bytes for HTTP.
  const alone = (path: string) => /[^\x21-\x7e]/.test(path) && ({ alone: true } as const);
  const id = random.chance(0.8)
    ? random.pick(ids)
    : random.text('0123456789abcdef-', random.pick([1, 35, 37, 199, 201, 4_000]));
  switch (random.int(5)) {
    case 0: {
      const bytes = requestBytes(random, { path: `/orders/${id}/status`, keyLines, body: '{"status":"paid"}' });
      return { bytes, about: `status of ${id}`, expected: { kind: 'refused' }, ...alone(id) };
    }
    case 1: {
      const bytes = requestBytes(random, { method: 'GET', path: `/orders/${id}`, headers: noise(random) });
      return { bytes, about: `read ${id}`, expected: { kind: 'refused' }, ...alone(id) };
    }
    case 2: {
      const path = `/orders/00000000-0000-4000-8000-000000000000${random.pick(['', '?a=b', '?%zz', '?__proto__=1', '?a[]=1&a=2'])}`;
      const bytes = requestBytes(random, { method: 'GET', path, tenant: random.pick(tenants) });
      return { bytes, about: `read ${path}`, expected: { kind: 'read' } };
    }
    case 3: {
      const method = random.pick(methods);
      const bytes = requestBytes(random, { method, keyLines, body: random.chance(0.5) ? body : '' });
      const bodiless = method === 'HEAD' && ({ bodiless: true } as const);
      // Fastify closes the connection after some of these, and what came behind them would be lost.
      return { bytes, about: `${method} /orders`, expected: { kind: 'refused' }, alone: true, ...bodiless };
    }
    default: {
      const path = random.pick(elsewhere);
      const bytes = requestBytes(random, { path, keyLines, body });
      return { bytes, about: `path ${path}`, expected: { kind: 'refused' }, alone: true };
    }
  }
}
