/** Many clients at once, through both doors of both processes, each of which repeats until it is answered. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Answer, Asked } from './asked.ts';
import type { Fleet, Role } from './fleet.ts';
import { askHttp } from './http-door.ts';

export interface Told {
  asked: Asked;
  door: 'http' | 'grpc';
  answer: Answer;
  /** What it was told before. */
  failures: string[];
}

export interface StormOptions {
  /** Requests for each key, every second one over gRPC. */
  perKey: number;
  /** Keys, from the first on, that come to A alone at first: of these A is sure to win the claim. Defaults to none. */
  onlyToA?: number;
}

/** From the first request to its answer, whatever happens in between. */
const answeredWithinMs = 30_000;
const firstPauseMs = 25;
const longestPauseMs = 400;

export async function storm(
  fleet: Fleet,
  asked: readonly Asked[],
  { perKey, onlyToA = 0 }: StormOptions,
): Promise<Told[]> {
  const rounds = Array.from({ length: perKey }, async (_, n) =>
    Promise.all(asked.map(async (each, key) => ask(fleet, each, n, key < onlyToA ? 'a' : spread(n)))),
  );
  return (await Promise.all(rounds)).flat();
}

/** Neighbours differ in the door, pairs of neighbours in the process. */
function spread(n: number): Role {
  return (n >> 1) % 2 === 0 ? 'a' : 'b';
}

/** The first time to `first`; then, by turns, half of the clients begin with B, and half with A, or who comes after it. */
async function ask(fleet: Fleet, asked: Asked, n: number, first: Role): Promise<Told> {
  const door = n % 2 === 0 ? 'http' : 'grpc';
  const failures: string[] = [];
  const deadline = performance.now() + answeredWithinMs;
  for (let attempt = 0; performance.now() < deadline; attempt += 1) {
    const role = attempt === 0 ? first : spread(n + 2 * attempt);
    const orders = await fleet.at(role);
    const result = await (door === 'http' ? askHttp(orders.http, asked) : orders.grpc.ask(asked));
    if ('answer' in result) return { asked, door, answer: result.answer, failures };
    failures.push(`${role}: ${result.failure}`);
    await delay(Math.min(firstPauseMs * 2 ** attempt, longestPauseMs));
  }
  throw new Error(`${asked.key} over ${door} was not answered: ${failures.join('\n')}`);
}
