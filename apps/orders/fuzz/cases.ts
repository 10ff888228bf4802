import {
  commandOf,
  nastyBody,
  nastyStatusBody,
  statuses,
  validCreate,
  writeCreate,
  writeStatus,
  type Create,
} from './bodies.ts';
import { nastyAuthorization, nastyContentType, noise } from './headers.ts';
import { meaningOf, nastyKeyLines, validKey, writeKey } from './keys.ts';
import { nastyPath } from './paths.ts';
import type { Random } from './random.ts';
import { refusedTenant, requestBytes, tenants, type Case, type Wanted } from './request.ts';
import { largeRequest, mutatedRequest, oddRequest, unreadableRequest } from './unreadable.ts';

export interface Generator {
  next(): Case;
  /** So that later requests change orders that are there. */
  learn(tenant: string, orderId: string): void;
}

/** Kinds of requests, and how many of a hundred are of each. */
const weights = {
  create: 34,
  again: 10,
  reused: 4,
  status: 8,
  expired: 1,
  key: 12,
  body: 11,
  header: 5,
  path: 7,
  unreadable: 3,
  odd: 2,
  mutated: 2,
  large: 1,
} as const;
type Kind = keyof typeof weights;
const kinds = (Object.keys(weights) as Kind[]).flatMap((kind) => Array.from({ length: weights[kind] }, () => kind));

export function createGenerator(random: Random): Generator {
  /** What has been asked for lately, to ask again. */
  const recent: (Wanted & { create: Create })[] = [];
  const orders = new Map<string, string[]>(tenants.map((tenant) => [tenant, []]));
  const remember = <T>(list: T[], value: T): void => {
    list.push(value);
    if (list.length > 500) list.shift();
  };
  const create = (tenant: string, key: string, command: Create, about: string): Case => {
    const wanted = { tenant, operation: 'orders.create', key, command: commandOf(command) } as const;
    remember(recent, { ...wanted, create: command });
    const keyLines = [writeKey(random, key)];
    const { bytes: body } = writeCreate(random, command);
    const bytes = requestBytes(random, { tenant, keyLines, body, headers: noise(random) });
    return { bytes, about, expected: { kind: 'wanted', wanted } };
  };
  const fresh = (): Case => create(random.pick(tenants), validKey(random), validCreate(random), 'create');
  const makers: Record<Kind, () => Case> = {
    create: fresh,
    again: () => {
      if (recent.length === 0) return fresh();
      const { tenant, key, create: command } = random.pick(recent);
      return create(tenant, key, command, 'again');
    },
    reused: () => (recent.length === 0 ? fresh() : create(...reusedFrom(random, random.pick(recent)), 'reused')),
    status: () => statusCase(random, orders),
    expired: () => expiredCase(random),
    key: () => keyCase(random),
    body: () => bodyCase(random),
    header: () => headerCase(random),
    path: () => nastyPath(random),
    unreadable: () => unreadableRequest(random),
    odd: () => oddRequest(random),
    mutated: () => mutatedRequest(random),
    large: () => largeRequest(random),
  };
  return {
    next: () => makers[random.pick(kinds)](),
    learn: (tenant, orderId) => remember(orders.get(tenant) ?? [], orderId),
  };
}

function reusedFrom(random: Random, { tenant, key }: Wanted): [tenant: string, key: string, command: Create] {
  return [tenant, key, validCreate(random)];
}

function statusCase(random: Random, orders: ReadonlyMap<string, readonly string[]>): Case {
  const tenant = random.pick(tenants);
  // Its own, mostly; somebody else's; or nobody's. What is known by now must not change what is drawn next.
  const owner = random.pick([tenant, tenant, tenant, ...tenants]);
  const [isKnown, nth] = [random.chance(0.9), random.int(500)];
  const owned = orders.get(owner) ?? [];
  const orderId = (isKnown && owned[nth % owned.length]) || `00000000-0000-4000-8000-00000000000${nth % 10}`;
  const status = random.pick(statuses);
  const key = validKey(random);
  const written = random.chance(0.2) ? orderId.toUpperCase() : random.chance(0.1) ? percentEncoded(orderId) : orderId;
  const bytes = requestBytes(random, {
    tenant,
    path: `/orders/${written}/status`,
    keyLines: [writeKey(random, key)],
    body: writeStatus(random, status),
    headers: noise(random),
  });
  const wanted = { tenant, operation: 'orders.set-status', key, command: `${orderId} ${status}` } as const;
  return { bytes, about: 'status', expected: { kind: 'wanted', wanted } };
}

function percentEncoded(text: string): string {
  return text.replaceAll(/[0-9]/g, (each) => `%${each.charCodeAt(0).toString(16)}`);
}

/** A UUIDv7 of long ago is looked up, and never claimed. */
function expiredCase(random: Random): Case {
  const hex = (length: number): string => random.text('0123456789abcdef', length);
  const key = `00${hex(6)}-${hex(4)}-7${hex(3)}-8${hex(3)}-${hex(12)}`;
  const { bytes: body } = writeCreate(random, validCreate(random));
  const bytes = requestBytes(random, { tenant: 'expired', keyLines: [writeKey(random, key)], body });
  return { bytes, about: 'expired', expected: { kind: 'read' } };
}

function keyCase(random: Random): Case {
  const keyLines = nastyKeyLines(random);
  const meaning = meaningOf(keyLines);
  const command = validCreate(random);
  const { bytes: body } = writeCreate(random, command);
  const about = `key ${JSON.stringify(keyLines).slice(0, 200)}`;
  if (typeof meaning === 'object') {
    const tenant = random.pick(tenants);
    const wanted = { tenant, operation: 'orders.create', key: meaning.key, command: commandOf(command) } as const;
    return { bytes: requestBytes(random, { tenant, keyLines, body }), about, expected: { kind: 'wanted', wanted } };
  }
  const bytes = requestBytes(random, { keyLines, body });
  if (meaning === 'unreadable') return { bytes, about, expected: { kind: 'refused' }, alone: true };
  return { bytes, about, expected: { kind: 'refused', as: meaning } };
}

function bodyCase(random: Random): Case {
  const keyLines = [writeKey(random, validKey(random))];
  if (random.chance(0.2)) {
    const body = nastyStatusBody(random);
    const path = '/orders/00000000-0000-4000-8000-000000000000/status';
    const bytes = requestBytes(random, { path, keyLines, body });
    return { bytes, about: `body ${body}`, expected: { kind: 'refused', as: 'request-invalid' } };
  }
  const { bytes: body, meaning } = nastyBody(random);
  const bytes = requestBytes(random, { keyLines, body });
  if (typeof meaning === 'object') throw new Error('a nasty body is never right');
  return { bytes, about: `body ${JSON.stringify(body).slice(0, 200)}`, expected: { kind: 'refused', as: meaning } };
}

function headerCase(random: Random): Case {
  const keyLines = [`${refusedTenant}-${random.int(1e9)}`];
  const { bytes: body } = writeCreate(random, validCreate(random));
  if (random.chance(0.5)) {
    const authorization = nastyAuthorization(random);
    const bytes = requestBytes(random, { authorization, keyLines, body });
    return {
      bytes,
      about: `authorization ${authorization.join('|')}`,
      expected: { kind: 'refused', as: 'unauthenticated' },
    };
  }
  const contentType = nastyContentType(random);
  const bytes = requestBytes(random, { contentType, keyLines, body });
  const expected = { kind: 'refused', as: 'media-type-unsupported' } as const;
  return { bytes, about: `content-type ${contentType.join('|').slice(0, 200)}`, expected };
}
