/**
 * A named place between two instructions where a test can wait and the chaos harness can kill,
 * for example `relay:published`. Named `room:what-has-just-happened`.
 *
 * In production a point does nothing and costs one call. When TWICEPROOF_POINTS names a unix socket at
 * the start of the process, each point writes one line `{"id","name","hit","pid"}` to it, and waits for
 * the line that answers with the id alone. Whoever listens there may let it go on, keep it waiting, or
 * send this process a signal: that is all; a point itself can do nothing but wait.
 */
import { connect } from 'node:net';
import { TwiceproofError } from './errors.ts';

export type PointName = `${string}:${string}`;

export type Point = (name: PointName) => Promise<void>;

const nothing = Promise.resolve();

/** Public for its own test; everybody else calls `point`. */
export function pointsFrom(env: NodeJS.ProcessEnv): Point {
  const socketPath = env['TWICEPROOF_POINTS'];
  if (!socketPath) return () => nothing;
  if (env['NODE_ENV'] === 'production') {
    throw new TwiceproofError('TP_POINTS_IN_PRODUCTION', 'TWICEPROOF_POINTS is set in production mode');
  }
  return armedPoints(socketPath);
}

export const point: Point = pointsFrom(process.env);

/** For what is done in steps only where something may happen between them. */
export const arePointsArmed = Boolean(process.env['TWICEPROOF_POINTS']);

/** Ids tell the answers apart, so that points which are waiting at the same time do not wait for each other. */
function armedPoints(socketPath: string): Point {
  const hits = new Map<PointName, number>();
  const waiting = new Map<number, () => void>();
  let lastId = 0;
  let open = true;

  // What waits at a point keeps the process alive, as the work after it would; the socket itself does not.
  const socket = connect(socketPath).unref().setEncoding('utf8');
  const letGo = (id: number): void => {
    waiting.get(id)?.();
    waiting.delete(id);
    if (waiting.size === 0) socket.unref();
  };
  let unread = '';
  socket.on('data', (text: string) => {
    const lines = (unread + text).split('\n');
    unread = lines.pop() ?? '';
    for (const line of lines) letGo(Number(line));
  });
  // Without a supervisor there is nobody to wait for. 'close' follows each error.
  socket.on('error', () => {});
  socket.on('close', () => {
    open = false;
    for (const id of waiting.keys()) letGo(id);
  });

  return (name) => {
    if (!open) return nothing;
    const id = (lastId += 1);
    const hit = (hits.get(name) ?? 0) + 1;
    hits.set(name, hit);
    return new Promise((resolve) => {
      waiting.set(id, resolve);
      socket.ref();
      socket.write(`${JSON.stringify({ id, name, hit, pid: process.pid })}\n`);
    });
  };
}
