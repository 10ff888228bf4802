import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { randomInt } from 'node:crypto';
import { Refusal } from '@twiceproof/program';

/**
 * Below the range from which the kernel takes ports for outgoing connections (32768 and up on Linux):
 * there, while a server is down, some client of the machine may be given the very port that the
 * server needs when it comes back.
 */
const lowest = 12_000;
const highest = 32_000;

/** Ports that this process has told somebody, who may not listen there yet, or not at the moment. */
const told = new Set<number>();

/** Ports of 127.0.0.1 that nobody listens on now. None comes twice, unless most of them were told. */
export async function freePorts(count: number): Promise<number[]> {
  const held: Server[] = [];
  const ports: number[] = [];
  try {
    while (ports.length < count) {
      if (told.size > (highest - lowest) / 2) told.clear();
      const port = randomInt(lowest, highest);
      const server = told.has(port) ? undefined : await listen(port);
      if (!server) continue;
      told.add(port);
      held.push(server);
      ports.push(port);
    }
  } finally {
    await Promise.all(held.map((server) => new Promise((resolve) => server.close(resolve))));
  }
  return ports;
}

/** For a port that a person chose. */
export async function requireFreePort(port: number, what: string, flag: string): Promise<void> {
  const server = await listen(port);
  if (!server) {
    throw new Refusal(
      `Port ${port} for ${what} is taken by another program.`,
      `Stop that program (\`npm run infra -- status\` shows ours), or choose another port with ${flag}, or leave it out for a free one.`,
    );
  }
  await new Promise((resolve) => server.close(resolve));
}

async function listen(port: number): Promise<Server | undefined> {
  const server = createServer().listen(port, '127.0.0.1');
  try {
    await once(server, 'listening');
    return server;
  } catch (error) {
    if (!['EADDRINUSE', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    return undefined;
  }
}
