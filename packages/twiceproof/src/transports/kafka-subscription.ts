import { setTimeout as delay } from 'node:timers/promises';
import type { Delivery, SubscribeOptions, Subscription } from '../transport.ts';
import { doneWithin, type ClientFactory } from './kafka-client.ts';
import { toTwiceproofError } from './kafka-errors.ts';
import { joinGroup, type Membership } from './kafka-membership.ts';
import { createReceiver, isRevoked, settleInLane, type LaneState } from './lanes.ts';

const rejoinAfterMs = 500;
const closeWaitMs = 5000;

/**
 * A subscription lives through memberships, one after another. A membership joins the group, is
 * given lanes in each generation, and fetches for them. It ends when anything about it fails: a
 * failed rejoin, heartbeats that stall, a commit that cannot be made, a callback that throws. Then
 * its clients are thrown away, and after a pause a new membership joins. Within a membership, each
 * rebalance takes every lane away and deals out new ones (the eager protocol), so nothing that was
 * handed out before it can be settled after it.
 */
export async function subscribe(clients: ClientFactory, options: SubscribeOptions): Promise<Subscription> {
  const closing = new AbortController();
  const receiver = createReceiver({ drained: () => membership?.kick() });
  let membership: Membership | undefined;

  // The first join's failure is the caller's to hear of; later ones are trouble, and tried again.
  membership = await joinGroup(clients, options, receiver);
  const living = live();

  async function live(): Promise<void> {
    while (!closing.signal.aborted) {
      if (membership) {
        const reason = await membership.ended;
        if (closing.signal.aborted) return;
        options.onTrouble?.(reason);
        const last = membership;
        membership = undefined;
        await last.leave();
      }
      await delay(rejoinAfterMs * (1 + Math.random()), undefined, { signal: closing.signal }).catch(() => {});
      if (closing.signal.aborted) return;
      const joined = await joinGroup(clients, options, receiver, closing.signal).catch((error: unknown) => {
        if (!closing.signal.aborted) options.onTrouble?.(toTwiceproofError(error, `joining group ${options.group}`));
        return undefined;
      });
      // Closed between its success and this line: nobody else knows of it.
      if (closing.signal.aborted) await joined?.leave();
      else membership = joined;
    }
  }

  async function settle(deliveries: readonly Delivery[]): Promise<'settled' | 'stale'> {
    const answers = [...receiver.byLane(deliveries)].map(([state, those]) => settleLane(state, those));
    return (await Promise.all(answers)).includes('stale') ? 'stale' : 'settled';
  }

  async function settleLane(state: LaneState | undefined, deliveries: readonly Delivery[]) {
    if (!state || isRevoked(state) || !membership) return 'stale';
    const offset = settleInLane(state, deliveries);
    // The lane is free for its next batch, or still waits for the rest of this one.
    receiver.wake();
    return offset === undefined ? 'settled' : await membership.settled(state, offset);
  }

  async function close(): Promise<void> {
    closing.abort();
    receiver.close();
    const last = membership;
    membership = undefined;
    await doneWithin(closeWaitMs, 'leaving the group', Promise.all([last?.leave(), living])).catch(() =>
      last?.abandon(),
    );
  }

  return {
    receive: (wanted) => receiver.receive(wanted),
    settle,
    pause: (lane) => receiver.setPaused(lane, true),
    resume(lane) {
      receiver.setPaused(lane, false);
      membership?.kick();
    },
    close,
  };
}
