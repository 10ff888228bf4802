import assert from 'node:assert/strict';
import { createGenerator } from './cases.ts';
import { openConnection, type Connection, type HttpAnswer } from './client.ts';
import type { Random } from './random.ts';
import type { Case } from './request.ts';

const connections = 12;
const maxPipelined = 24;
/** After so long without an answer we close our side, and Node says what it misses. */
const patienceMs = 1_500;

type Hear = (one: Case, answer: HttpAnswer) => void;

/** Answers how many connections ended without an answer. */
export async function sendAll(
  origins: readonly string[],
  random: Random,
  requests: number,
  hear: Hear,
): Promise<number> {
  const generator = createGenerator(random);
  let made = 0;
  let unanswered = 0;
  const heard: Hear = (one, answer) => {
    hear(one, answer);
    const { expected } = one;
    if (answer.status !== 201 || expected.kind !== 'wanted') return;
    generator.learn(expected.wanted.tenant, (JSON.parse(answer.body) as { order_id: string }).order_id);
  };
  const worker = async (origin: string): Promise<void> => {
    let connection = openConnection(origin);
    while (made < requests) {
      const batch: Case[] = [];
      const alone: Case[] = [];
      const size = 1 + random.int(maxPipelined);
      for (; batch.length < size && made < requests; made += 1) {
        const one = generator.next();
        (one.alone ? alone : batch).push(one);
      }
      connection = await sendBatch(connection, origin, random, batch, heard);
      for (const one of alone) {
        const isAnswered = await sendAlone(origin, one, heard);
        if (!isAnswered) unanswered += 1;
      }
    }
    connection.destroy();
  };
  await Promise.all(Array.from({ length: connections }, async (_, n) => worker(origins[n % origins.length]!)));
  return unanswered;
}

/** All at once on one connection; the answers come in the same order. Answers the connection to go on with. */
async function sendBatch(
  connection: Connection,
  origin: string,
  random: Random,
  batch: readonly Case[],
  hear: Hear,
): Promise<Connection> {
  const bytes = batch.map((one) => one.bytes).join('');
  // Behind them, at times, something that is no HTTP: what was asked before must not suffer from it.
  const behind = random.chance(0.05) ? '\0\r\n\r\n' : '';
  connection.send(bytes + behind, random.chance(0.2) ? [random.int(bytes.length), random.int(200)] : []);
  for (const [n, one] of batch.entries()) {
    const answer = await connection.read(one.bodiless);
    if (answer) hear(one, answer);
    else assert.ok(behind, `no answer to ${one.about}: ${JSON.stringify(one.bytes.slice(0, 1_000))}`);
    if (answer && answer.headers.get('connection') !== 'close') continue;
    // The rest is asked again, with the same keys: whether it was carried out does not matter.
    connection.destroy();
    return sendBatch(openConnection(origin), origin, random, batch.slice(answer ? n + 1 : n), hear);
  }
  if (!behind) return connection;
  connection.destroy();
  return openConnection(origin);
}

/** Answers whether there was an answer. */
async function sendAlone(origin: string, one: Case, hear: Hear): Promise<boolean> {
  const connection = openConnection(origin);
  connection.send(one.bytes);
  const timer = setTimeout(() => connection.end(), one.cut ? 0 : patienceMs);
  const answer = await connection.read(one.bodiless);
  clearTimeout(timer);
  connection.end();
  if (answer) hear(one, answer);
  else assert.notEqual(one.expected.kind, 'wanted', `no answer to ${one.about}`);
  for (let more = answer; more;) {
    more = await connection.read();
    if (more) hear({ ...one, expected: { kind: 'open' } }, more);
  }
  connection.destroy();
  return answer !== undefined;
}
