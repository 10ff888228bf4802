/** Where faults can strike. */
export const roles = ['orders', 'relay', 'payments'].flatMap((kind) => [`${kind}-1`, `${kind}-2`]);

/** What each kind of program passes again and again under load. Points of starts, ends and rebalances are left to time. */
export const points: Readonly<Record<string, readonly string[]>> = {
  orders: ['edge:before-claim', 'edge:statement-sent', 'http:committed', 'http:half-written', 'grpc:committed'],
  relay: [
    'source:reading',
    'relay:read',
    'relay:before-send',
    'relay:sending',
    'relay:acknowledged',
    'source:advance-sent',
    'source:advanced',
    'relay:advanced',
  ],
  payments: [
    'consumer:fetched',
    'inbox:asking',
    'consumer:accepted',
    'consumer:handling',
    'consumer:handled',
    'consumer:before-commit',
    'consumer:committed',
    'transport:offsets-sent',
  ],
};

export const brokers = ['broker-1', 'broker-2', 'broker-3'];
export const wires = [
  ...roles.map((role) => `${role}:postgres`),
  ...brokers,
  ...['orders-1', 'orders-2'].flatMap((role) => [`${role}:http`, `${role}:grpc`]),
];

export function kindOf(role: string): string {
  return role.split('-')[0]!;
}
