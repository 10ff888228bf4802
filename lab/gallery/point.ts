/**
 * Where a recipe can be killed. As the programs of this repository do it: a line for each point to the socket that
 * TWICEPROOF_POINTS names, and on with the line that answers with its id.
 */
import { connect } from 'node:net';
import { createInterface } from 'node:readline';

export type Point = (name: `recipe:${string}` | 'consumer:assigned') => Promise<void>;

export function openPoints(path: string | undefined): Point {
  if (path === undefined) return async () => {};
  const waiting = new Map<number, () => void>();
  const hits = new Map<string, number>();
  let lastId = 0;
  const socket = connect(path).unref();
  socket.on('error', () => {});
  createInterface({ input: socket }).on('line', (id) => {
    waiting.get(Number(id))?.();
    waiting.delete(Number(id));
  });
  return async (name) => {
    const id = (lastId += 1);
    const hit = (hits.get(name) ?? 0) + 1;
    hits.set(name, hit);
    await new Promise<void>((resolve) => {
      waiting.set(id, resolve);
      socket.write(`${JSON.stringify({ id, name, hit, pid: process.pid })}\n`);
    });
  };
}
