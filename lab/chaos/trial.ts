/** One fault in the midst of many requests, and the verdict. */
import type { Asked } from './asked.ts';
import type { Fleet, Shape } from './fleet.ts';
import { storm, type Told } from './storm.ts';
import { judge } from './verdict.ts';
import type { World } from './world.ts';

export interface Subject {
  shape: Shape;
  operation: 'create' | 'setStatus';
}

/** Arms itself while all is quiet; what it answers then goes on beside the requests, to the end of the fault. */
export type Fault = (fleet: Fleet) => Promise<() => Promise<void>>;

const keys = 8;
const perKey = 8;
const onlyToA = 4;

/** Answers what the clients were told in the storm; the tables have been judged. */
export async function trial(world: World, { shape, operation }: Subject, fault: Fault): Promise<Told[]> {
  const fleet = world.fleets[shape];
  const tenant = world.newTenant();
  const { before, asked } = await intents(fleet, tenant, operation);
  const strike = await fault(fleet);
  const [told] = await Promise.all([storm(fleet, asked, { perKey, onlyToA }), strike()]);
  const repeated = await storm(fleet, asked, { perKey: 4 });
  await judge(world.database, tenant, [...before, ...told, ...repeated]);
  return told;
}

export async function intents(
  fleet: Fleet,
  tenant: string,
  operation: Subject['operation'],
): Promise<{ before: Told[]; asked: Asked[] }> {
  if (operation === 'create') return { before: [], asked: creations(tenant, keys) };
  const before = await storm(fleet, creations(tenant, 3), { perKey: 2 });
  const [one, two, three] = new Set(before.map(({ answer }) => answer.order_id)) as unknown as string[];
  return { before, asked: changes(tenant, [one!, two!, three!]) };
}

export function creations(tenant: string, count: number): Asked[] {
  return Array.from({ length: count }, (_, n) => ({
    tenant,
    key: `create-${n}`,
    create: { account_id: n + 1, amount_cents: 100 + n },
  }));
}

/**
 * Those that come to A alone are all for one order: no batch holds two changes of an order, so that A has so many
 * batches for sure. The others share the other two orders.
 */
function changes(tenant: string, orders: readonly [string, string, string]): Asked[] {
  const statuses = ['paid', 'shipped', 'delivered', 'cancelled'];
  return Array.from({ length: keys }, (_, n) => ({
    tenant,
    key: `status-${n}`,
    setStatus: { order_id: n < onlyToA ? orders[0] : orders[1 + (n % 2)]!, status: statuses[n % 4]! },
  }));
}
