/** A proxy on each wire between the parts of the system, by the name of the wire. */
import type { KafkaOptions } from '@twiceproof/infra/kafka';
import { freePorts } from '@twiceproof/infra/ports';
import { startProxy, type FaultProxy } from '../proxy/proxy.ts';
import type { Program } from './programs.ts';

export interface Wires {
  /** `relay-1:postgres`, `broker-2`, `orders-1:http`, `orders-1:grpc`. */
  readonly all: ReadonlyMap<string, FaultProxy>;
  /** So that the brokers send our programs to their proxies. */
  readonly sideDoors: NonNullable<KafkaOptions['sideDoors']>;
  heal(): void;
  close(): Promise<void>;
}

/** The brokers have to be told of theirs before they start; the port of the database must be known too. */
export async function openWires(
  programs: readonly Program[],
  { brokers, databasePort }: { brokers: number; databasePort: number },
): Promise<Wires> {
  const ports = await freePorts(brokers);
  const targets: [name: string, port: number][] = [
    ...programs.map(({ role }): [string, number] => [`${role}:postgres`, databasePort]),
    ...ports.map((port, n): [string, number] => [`broker-${n + 1}`, port]),
    ...programs.flatMap(({ role, doors }): [string, number][] =>
      doors
        ? [
            [`${role}:http`, doors.http],
            [`${role}:grpc`, doors.grpc],
          ]
        : [],
    ),
  ];
  const all = new Map<string, FaultProxy>();
  for (const [name, port] of targets) all.set(name, await startProxy({ target: { host: '127.0.0.1', port } }));
  return {
    all,
    sideDoors: ports.map((port, n) => ({ port, advertisedPort: all.get(`broker-${n + 1}`)!.port })),
    heal: () => {
      for (const proxy of all.values()) proxy.heal();
    },
    close: async () => {
      await Promise.all([...all.values()].map(async (proxy) => proxy.close()));
    },
  };
}
