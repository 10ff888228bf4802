/**
 * One client, one server, and what is done to the bytes between them. Chunks are passed on as they came,
 * without a copy, and no faster than the other side takes them.
 */
import type { Socket } from 'node:net';
import { brinkOf, swallows, type Counts, type Direction, type Fault, type FaultKind } from './fault.ts';

export interface Surroundings {
  counts: Counts;
  /** The fault that takes hold now on a connection that has none: it opens, or the client sends these bytes. */
  take(clientBytes?: Buffer): Fault | undefined;
  onFired(kind: FaultKind): void;
}

export interface Connection {
  surroundings: Surroundings;
  flows: readonly Flow[];
  fault: Fault | undefined;
  /** The fault in force had an effect. */
  hasFired: boolean;
  /** Bytes, or the end of one side, were swallowed. */
  hasLost: boolean;
  /** We are closing it; what still comes does not count. */
  isEnding: boolean;
}

interface Flow {
  direction: Direction;
  from: Socket;
  to: Socket;
  /** Bytes since the fault took hold. */
  passed: number;
  ended: boolean;
  /** What drips later. */
  dripping?: { rest: Buffer; timer: NodeJS.Timeout };
}

export function connectThrough(client: Socket, server: Socket, surroundings: Surroundings): Connection {
  const toServer: Flow = { direction: 'to-server', from: client, to: server, passed: 0, ended: false };
  const toClient: Flow = { direction: 'to-client', from: server, to: client, passed: 0, ended: false };
  const flows = [toServer, toClient];
  const connection = { surroundings, flows, fault: undefined, hasFired: false, hasLost: false, isEnding: false };
  for (const flow of flows) carry(connection, flow);
  takeHold(connection);
  return connection;
}

function carry(connection: Connection, flow: Flow): void {
  flow.from.on('data', (chunk: Buffer) => {
    if (flow.direction === 'to-server') takeHold(connection, chunk);
    treat(connection, flow, chunk);
  });
  flow.from.on('end', () => {
    flow.ended = true;
    if (swallows(connection.fault, flow.direction)) lose(connection, flow, 0);
    else flow.to.end();
    if (connection.flows.every(({ ended }) => ended)) for (const { to } of connection.flows) to.destroySoon();
  });
  flow.from.on('error', () => {}); // 'close' follows, and says that there was one.
  flow.from.on('close', (hadError) => {
    if (connection.isEnding) return;
    if (swallows(connection.fault, flow.direction)) lose(connection, flow, 0);
    else if (hadError) flow.to.resetAndDestroy();
    else flow.to.destroySoon();
  });
}

function takeHold(connection: Connection, clientBytes?: Buffer): void {
  const taken = connection.fault ? undefined : connection.surroundings.take(clientBytes);
  if (taken) use(connection, taken);
}

/** From now on; undefined is transparent. A connection that has lost bytes cannot be honest again, and is reset. */
export function use(connection: Connection, fault: Fault | undefined): void {
  if (connection.hasLost) return reset(connection);
  connection.fault = fault;
  connection.hasFired = false;
  for (const flow of connection.flows) flow.passed = 0;
  if (fault?.kind === 'cut') {
    fire(connection);
    return destroy(connection);
  }
  for (const flow of connection.flows) stopDripping(connection, flow);
}

function treat(connection: Connection, flow: Flow, chunk: Buffer): void {
  const { fault, isEnding } = connection;
  if (isEnding) return;
  const brink = brinkOf(fault, flow.direction);
  if (swallows(fault, flow.direction)) lose(connection, flow, chunk.length);
  else if (brink !== undefined && flow.passed + chunk.length >= brink) endAt(connection, flow, brink, chunk);
  else if (fault?.kind === 'drip') drip(connection, flow, chunk, fault);
  else forward(connection, flow, chunk);
}

function forward({ surroundings: { counts } }: Connection, flow: Flow, bytes: Buffer): void {
  flow.passed += bytes.length;
  counts.bytes[flow.direction] += bytes.length;
  if (flow.to.write(bytes) || flow.dripping) return;
  flow.from.pause();
  flow.to.once('drain', () => {
    if (!flow.dripping) flow.from.resume();
  });
}

function lose(connection: Connection, { direction }: Flow, bytes: number): void {
  connection.hasLost = true;
  connection.surroundings.counts.lost[direction] += bytes;
  fire(connection);
}

function fire(connection: Connection): void {
  const { fault, hasFired, surroundings } = connection;
  if (!fault || hasFired) return;
  connection.hasFired = true;
  surroundings.counts.fired[fault.kind] += 1;
  surroundings.onFired(fault.kind);
}

function endAt(connection: Connection, flow: Flow, brink: number, chunk: Buffer): void {
  const still = chunk.subarray(0, brink - flow.passed);
  const end = (): void => (connection.fault?.kind === 'reset' ? reset(connection) : destroy(connection));
  lose(connection, flow, chunk.length - still.length);
  if (still.length === 0) return end();
  connection.isEnding = true;
  connection.surroundings.counts.bytes[flow.direction] += still.length;
  flow.to.write(still, end); // A socket that is destroyed forgets what it has not written yet.
}

type Drip = Extract<Fault, { kind: 'drip' }>;

function drip(connection: Connection, flow: Flow, chunk: Buffer, { bytes, intervalMs }: Drip): void {
  fire(connection);
  flow.from.pause();
  const pour = (): void => {
    const rest = flow.dripping?.rest ?? chunk;
    if (rest.length === 0) return stopDripping(connection, flow);
    const now = flow.to.writableNeedDrain ? 0 : bytes;
    flow.dripping = { rest: rest.subarray(now), timer: setTimeout(pour, intervalMs) };
    if (now > 0) forward(connection, flow, rest.subarray(0, now));
  };
  pour();
}

/** What has not dripped yet meets whatever is in force now. */
function stopDripping(connection: Connection, flow: Flow): void {
  const { dripping } = flow;
  if (!dripping) return;
  clearTimeout(dripping.timer);
  delete flow.dripping;
  flow.from.resume();
  if (dripping.rest.length > 0) treat(connection, flow, dripping.rest);
}

function reset(connection: Connection): void {
  for (const { from } of connection.flows) from.resetAndDestroy();
  destroy(connection);
}

export function destroy(connection: Connection): void {
  connection.isEnding = true;
  for (const { from, dripping } of connection.flows) {
    clearTimeout(dripping?.timer);
    from.destroy();
  }
}
