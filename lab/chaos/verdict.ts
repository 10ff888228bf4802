/** What must be true in the end, whatever happened: distinct effects = distinct intents. */
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import type { Answer, Asked } from './asked.ts';
import type { Told } from './storm.ts';

/** All that the tenant was ever told; the tables must hold what follows from that, and nothing else. */
export async function judge(database: pg.Pool, tenant: string, told: readonly Told[]): Promise<void> {
  const answered = [...Map.groupBy(told, ({ asked }) => asked.key).values()].map(oneAnswer);
  await untilNothingIsUnderWay(database);
  assert.deepEqual(await tablesOf(database, tenant), tablesFrom(answered));
}

interface Answered {
  asked: Asked;
  answer: Answer;
}

/** The same bytes at each door, and the same order behind both. */
function oneAnswer(told: readonly Told[]): Answered {
  const [{ asked, answer }] = told as [Told];
  const byDoor = Map.groupBy(told, ({ door }) => door);
  assert.deepEqual([...byDoor.keys()].toSorted(), ['grpc', 'http'], `${asked.key} was asked through both doors`);
  for (const [door, same] of byDoor) {
    const texts = new Set(same.map(({ answer: { text } }) => text));
    assert.equal(texts.size, 1, `${asked.key} has answers over ${door} that differ: ${[...texts].join('\n')}`);
  }
  for (const { answer: other } of told) assert.deepEqual(meaning(other), meaning(answer), asked.key);
  return { asked, answer };
}

function meaning({ order_id, status, version }: Answer): object {
  return { order_id, status, version };
}

/** Lines for a person to compare, sorted; a line that is there twice is a row that is. */
interface Tables {
  keys: string[];
  orders: string[];
  events: string[];
}

function tablesFrom(answered: readonly Answered[]): Tables {
  const operation = ({ asked }: Answered): string => ('create' in asked ? 'orders.create' : 'orders.set-status');
  const ofOneOrder = [...Map.groupBy(answered, ({ answer }) => answer.order_id).values()];
  const newest = ofOneOrder.map((same) => same.toSorted((one, other) => versionOf(other) - versionOf(one))[0]!.answer);
  const event = (one: Answered): string => {
    const type = 'create' in one.asked ? 'order.created' : 'order.status_changed';
    return `${one.answer.order_id} ${type} ${versionOf(one)} ${one.answer.status}`;
  };
  return {
    keys: answered.map((one) => `${operation(one)} ${one.asked.key} ${'create' in one.asked ? 201 : 200}`).toSorted(),
    orders: newest.map((one) => `${one.order_id} ${one.version ?? 1} ${one.status}`).toSorted(),
    events: answered.map(event).toSorted(),
  };
}

function versionOf({ answer }: Answered): number {
  return answer.version ?? 1;
}

/** An event whose order is nobody's is told to every tenant: it must not be there. */
async function tablesOf(database: pg.Pool, tenant: string): Promise<Tables> {
  const lines = async (text: string): Promise<string[]> => {
    const { rows } = await database.query<{ line: string }>(text, [tenant]);
    return rows.map(({ line }) => line).toSorted();
  };
  return {
    keys: await lines(
      `SELECT concat_ws(' ', operation, idem_key, coalesce(k.response_code, a.response_code)) AS line
         FROM twiceproof.idempotency_keys k LEFT JOIN twiceproof.answers a USING (id) WHERE principal = $1`,
    ),
    orders: await lines(`SELECT concat_ws(' ', order_id, version, status) AS line FROM orders WHERE tenant = $1`),
    events: await lines(
      `SELECT concat_ws(' ', aggregate_id, event_type, body ->> 'version', body ->> 'status') AS line
         FROM (SELECT *, convert_from(payload, 'utf8')::json AS body FROM twiceproof.outbox) AS events
         LEFT JOIN orders ON order_id::text = aggregate_id WHERE tenant = $1 OR tenant IS NULL`,
    ),
  };
}

const settledWithinMs = 10_000;

/** A process is dead before Postgres knows it; and what it had sent is still carried out. */
async function untilNothingIsUnderWay(database: pg.Pool): Promise<void> {
  const deadline = performance.now() + settledWithinMs;
  for (;;) {
    const { rows } = await database.query<{ query: string }>(
      `SELECT query FROM pg_stat_activity WHERE application_name = 'orders' AND state <> 'idle'`,
    );
    if (rows.length === 0) return;
    assert.ok(performance.now() < deadline, `still under way: ${rows.map(({ query }) => query).join('\n')}`);
    await delay(10);
  }
}
