import type { Batch, Subscription, Transport } from 'twiceproof/transport';

export interface WatchedTransport {
  transport: Transport;
  /** For how long the oldest batch has been received and not settled; 0 when there is none. */
  oldestMs(): number;
}

/** A batch that is tried again and again, because the database is away for instance, is seen by its age. */
export function watchUnderWay(transport: Transport): WatchedTransport {
  const underWay = new Map<Batch, number>();

  /** Whoever has the lane now does them. */
  function forgetRevoked(): void {
    for (const batch of underWay.keys()) if (batch.signal.aborted) underWay.delete(batch);
  }

  function watched(subscription: Subscription): Subscription {
    return {
      ...subscription,
      receive: async (wanted) => {
        const batch = await subscription.receive(wanted);
        forgetRevoked();
        if (batch) underWay.set(batch, performance.now());
        return batch;
      },
      settle: async (deliveries) => {
        const settled = new Set(deliveries);
        for (const batch of underWay.keys()) if (settled.has(batch.deliveries[0]!)) underWay.delete(batch);
        return subscription.settle(deliveries);
      },
    };
  }

  return {
    transport: { ...transport, subscribe: async (wanted) => watched(await transport.subscribe(wanted)) },
    oldestMs: () => {
      forgetRevoked();
      return underWay.size === 0 ? 0 : performance.now() - Math.min(...underWay.values());
    },
  };
}
