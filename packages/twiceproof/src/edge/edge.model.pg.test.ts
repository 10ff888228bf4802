import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import fc from 'fast-check';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import type { Answer, Intent } from '../idempotency/intent.ts';
import { migrate } from '../migrations/migrate.ts';
import type { Tx } from '../tx.ts';
import { createGroupEdge } from './group.ts';
import { createHandlerEdge } from './handler.ts';
import { createKeySweeper } from './key-sweeper.ts';
import { createPlannedEdge } from './planned.ts';
import type { Reply } from './reply.ts';

const { url } = await testDatabase();
/** Two pools stand for two processes: nothing in memory is shared but the database. */
const pools = [0, 1].map(() => new pg.Pool({ connectionString: url, max: 6 }));
const [pool] = pools as [pg.Pool, pg.Pool];
after(async () => Promise.all(pools.map(async (each) => each.end())));
await migrate(pool);
await pool.query('CREATE TABLE effects (world text, tenant int, key int, body int)');

interface Request {
  tenant: number;
  key: number;
  body: number;
  process: 0 | 1;
  behaviour: 'works' | 'fails' | 'is slow';
  /** How many turns of the event loop it comes later. */
  late: number;
}

const request: fc.Arbitrary<Request> = fc.record({
  tenant: fc.nat(1),
  key: fc.nat(2),
  body: fc.nat(1),
  process: fc.constantFrom(0 as const, 1 as const),
  behaviour: fc.constantFrom('works' as const, 'works' as const, 'fails' as const, 'is slow' as const),
  late: fc.nat(8),
});

type Run = (request: Request) => Promise<Reply>;

/** Keys are those of a world, and effects those of one of its rounds: between two rounds all keys expire. */
interface World {
  name: string;
  round: number;
}

let worlds = 0;
const hourMs = 3_600_000;
/** A new one has seen no key yet; one that has would not look again before their time, which comes by a trick here. */
const newSweeper = () => createKeySweeper({ pool, retentionMs: hourMs });

const effectsOf = ({ name, round }: World): string => `${name} round ${round}`;

async function effect(tx: Tx, world: World, requests: readonly Request[]): Promise<Answer[]> {
  if (requests.some(({ behaviour }) => behaviour === 'is slow')) await tx.query('SELECT pg_sleep(0.005)');
  for (const { tenant, key, body } of requests) {
    await tx.query('INSERT INTO effects VALUES ($1, $2, $3, $4)', [effectsOf(world), tenant, key, body]);
  }
  if (requests.some(({ behaviour }) => behaviour === 'fails')) throw new Error('as it should');
  return requests.map(({ tenant, body }) => answerTo(tenant, body));
}

function answerTo(tenant: number, body: number): Answer {
  const text = `tenant ${tenant}, body ${body}, ${Math.random()}`;
  return { code: 201, headers: null, body: Buffer.from(text), version: 1 };
}

function intentOf({ name: world }: World, { tenant, key, body }: Request): Intent {
  const requestHash = `0${body}`;
  return { principal: `tenant-${tenant}`, operation: world, key: `key-${key}`, requestHash, hashVersion: 1 };
}

const shapes: Record<string, (world: World) => Run> = {
  handler: (world) => {
    const edges = pools.map((each) => createHandlerEdge({ pool: each }));
    return async (asked) =>
      edges[asked.process]!.run(intentOf(world, asked), async (tx) => (await effect(tx, world, [asked]))[0]!);
  },
  group: (world) => {
    const effects = async (tx: Tx, commands: readonly Request[]): Promise<Answer[]> => effect(tx, world, commands);
    const edges = pools.map((each) => createGroupEdge<Request>({ pool: each, effects, lanes: 2 }));
    return async (asked) => edges[asked.process]!.run(intentOf(world, asked), asked);
  },
  planned: (world) => {
    const edges = pools.map((each) =>
      createPlannedEdge<Request, Planned>({
        pool: each,
        lanes: 2,
        columns: { world: 'text', tenant: 'int', key: 'int', body: 'int', behaviour: 'text' },
        // The server fails, or is slow, for who is meant to.
        statement: `INSERT INTO effects SELECT world, tenant, key, body FROM won
          WHERE CASE behaviour WHEN 'fails' THEN 1 / (tenant - tenant) = 0
            WHEN 'is slow' THEN pg_sleep(0.005) IS NOT NULL ELSE true END RETURNING 1`,
        plan: ({ tenant, key, body, behaviour }) => ({
          answer: answerTo(tenant, body),
          row: { world: effectsOf(world), tenant, key, body, behaviour },
        }),
      }),
    );
    return async (asked) => edges[asked.process]!.run(intentOf(world, asked), asked);
  },
};

type Planned = Omit<Request, 'process' | 'late'> & { world: string };

interface Told {
  request: Request;
  reply: Reply | undefined;
}

async function ask(run: Run, asked: Request): Promise<Told> {
  for (let turn = 0; turn < asked.late; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  return { request: asked, reply: await run(asked).catch(() => undefined) };
}

/** What every world must look like, whatever came first. */
function judge(told: readonly Told[], effects: readonly { tenant: number; key: number; body: number }[]): void {
  const named = ({ tenant, key }: { tenant: number; key: number }): string => `tenant ${tenant} key ${key}`;
  for (const [name, same] of Map.groupBy(told, ({ request: asked }) => named(asked))) {
    const made = effects.filter((each) => named(each) === name);
    const answered = same.filter(({ reply }) => reply?.outcome === 'answered');
    assert.equal(made.length, answered.length > 0 ? 1 : 0, `${name}: effects`);
    for (const { request: asked, reply } of same) {
      // Only who is meant to fail may fail, and who waits gets an answer in the end.
      if (!reply) assert.equal(asked.behaviour, 'fails', name);
      else if (reply.outcome === 'answered') assert.equal(asked.body, made[0]!.body, `${name}: the body that won`);
      else assert.deepEqual([reply.outcome, asked.body !== made[0]?.body], ['mismatch', true], name);
    }
    const answers = answered.map(({ reply }) => (reply?.outcome === 'answered' ? reply : undefined)!);
    assert.ok(
      new Set(answers.map(({ answer }) => Buffer.from(answer.body!).toString('hex'))).size <= 1,
      `${name}: one answer`,
    );
    assert.equal(answers.filter(({ replayed }) => !replayed).length, Math.min(answered.length, 1), `${name}: run once`);
  }
}

/** Beside the requests the sweeper is at work, and finds nothing that is old enough. */
async function playRound(world: World, run: Run, requests: readonly Request[]): Promise<void> {
  const [told] = await Promise.all([
    Promise.all(requests.map(async (each) => ask(run, each))),
    newSweeper().runOnce(),
    newSweeper().runOnce(),
  ]);
  const { rows } = await pool.query<{ tenant: number; key: number; body: number }>(
    'SELECT tenant, key, body FROM effects WHERE world = $1',
    [effectsOf(world)],
  );
  judge(told, rows);
}

async function expireAll(): Promise<void> {
  await pool.query(`UPDATE twiceproof.idempotency_keys SET created_at = created_at - interval '2 hours'`);
  const sweeper = newSweeper();
  while ((await sweeper.runOnce()) === 'busy');
  const { rowCount } = await pool.query('SELECT FROM twiceproof.idempotency_keys LIMIT 1');
  assert.equal(rowCount, 0);
}

const rounds = fc.array(fc.array(request, { minLength: 2, maxLength: 30 }), { minLength: 1, maxLength: 3 });

for (const [shape, create] of Object.entries(shapes)) {
  test(`${shape}: whatever comes at once, each key has one effect and one answer, until it expires`, async () => {
    await fc.assert(
      fc.asyncProperty(rounds, async (played) => {
        const world = { name: `world-${(worlds += 1)}`, round: 0 };
        const run = create(world);
        for (const requests of played) {
          world.round += 1;
          await playRound(world, run, requests);
          await expireAll();
        }
      }),
      { numRuns: 40 },
    );
  });
}
