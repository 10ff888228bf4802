import { ConnectionPool, Consumer, type ConsumerOptions } from '@platformatic/kafka';
import { TwiceproofError } from '../errors.ts';
import { watchStandstill } from '../standstill.ts';
import type { SubscribeOptions } from '../transport.ts';
import { createAssignment } from './kafka-assignment.ts';
import { discard, doneWithin, type ClientFactory } from './kafka-client.ts';
import { createCommits } from './kafka-commits.ts';
import { toTwiceproofError } from './kafka-errors.ts';
import { createFetcher, type FetchedLane } from './kafka-fetcher.ts';
import type { LaneState, Receiver } from './lanes.ts';

const groupTimes = { sessionTimeout: 6000, rebalanceTimeout: 10_000, heartbeatInterval: 1500 };
/** A join waits for the other members' rejoin, at most the rebalance timeout, and for a dead one's session. */
const joinWithinMs = 25_000;
const leaveWithinMs = 3000;

export interface Membership {
  /** Why it is over; it never rejects. */
  readonly ended: Promise<TwiceproofError>;
  kick(): void;
  /** This lane is settled up to here. */
  settled(lane: LaneState, offset: bigint): Promise<'settled' | 'stale'>;
  leave(): Promise<void>;
  abandon(): void;
}

/**
 * Joins the group and resolves when the lanes of its first generation are being fetched for.
 *
 * Two clients. `member` joins and sends heartbeats and does nothing else: it retries by itself, and
 * a commit through it would, on a fenced generation, silently rejoin and commit again under the
 * new one. `worker` asks, commits and fetches: it never joins, never retries, and carries the
 * member's id and the generation in which the lanes were given, which is what the broker checks.
 */
export async function joinGroup(
  clients: ClientFactory,
  options: SubscribeOptions,
  receiver: Receiver,
  signal?: AbortSignal,
): Promise<Membership> {
  const member = createConsumer(clients, options, { retries: 10, requestTimeout: 15_000 });
  const worker = createConsumer(clients, options, { retries: 0, requestTimeout: 5000, metadataMaxAge: 30_000 });
  const fetchConnections = new ConnectionPool('twiceproof', { ...clients.base(), requestTimeout: 5000 });
  const over = Promise.withResolvers<TwiceproofError>();
  let reasonForEnd = undefined as TwiceproofError | undefined;

  const fetcher = createFetcher(worker, fetchConnections, {
    lanes: () => receiver.lanes as readonly FetchedLane[],
    arrived: () => receiver.wake(),
    onTrouble: (error) => options.onTrouble?.(error),
    failed: (error) => end(toTwiceproofError(error, 'fetching')),
    onTopicChanged: (topic) =>
      end(new TwiceproofError('TP_LANE_REVOKED', `topic ${topic} has more partitions or is another`)),
  });
  const assignment = createAssignment({ member, worker, options, receiver, assigned: fetcher.kick, failed: end });
  const commits = createCommits({
    everyMs: options.offsetsEveryMs ?? 0,
    commit: (positions) => worker.commit({ offsets: positions.map((each) => ({ ...each, leaderEpoch: -1 })) }),
    // The member's own heartbeat will find out, and rejoin.
    lost: assignment.revoke,
    failed: end,
  });

  // Whoever loses his lanes so hears of it as any other rebalance, which says nothing of the cause.
  const endWatch = watchStandstill(groupTimes.sessionTimeout / 2, (ms) =>
    options.onTrouble?.(new TwiceproofError('TP_STOOD_STILL', `this process stood still for ${Math.round(ms)} ms`)),
  );

  function end(reason: TwiceproofError): void {
    reasonForEnd ??= reason;
    assignment.revoke();
    over.resolve(reasonForEnd);
  }

  function abandon(): void {
    end(new TwiceproofError('TP_CLOSED', 'the subscription was closed'));
    fetcher.stop();
    endWatch();
    [member, worker, { connections: fetchConnections, close: () => fetchConnections.close() }].forEach(discard);
  }

  member.on('consumer:group:rebalance', assignment.revoke);
  member.on('consumer:group:join', () => {
    if (!reasonForEnd) assignment.assign();
  });
  member.on('error', (error) => end(toTwiceproofError(error, 'rejoining')));
  member.on('consumer:heartbeat:stalled', () =>
    end(new TwiceproofError('TP_BROKER_UNREACHABLE', `no heartbeat of group ${options.group} was answered`)),
  );
  signal?.addEventListener('abort', abandon, { once: true });

  async function becomeReady(): Promise<void> {
    await worker.metadata({ topics: [...options.topics], retries: 3 });
    await member.joinGroup({});
    await assignment.settled();
  }

  try {
    await doneWithin(joinWithinMs, `joining group ${options.group}`, Promise.race([over.promise, becomeReady()]));
    if (reasonForEnd) throw reasonForEnd;
  } catch (error) {
    abandon();
    throw toTwiceproofError(error, `joining group ${options.group}`);
  } finally {
    // From here on it is left politely.
    signal?.removeEventListener('abort', abandon);
  }

  return {
    ended: over.promise,
    kick: fetcher.kick,
    settled: commits.add,
    async leave() {
      await doneWithin(leaveWithinMs, 'committing', commits.flush()).catch(() => {});
      assignment.revoke();
      await assignment.settled();
      await doneWithin(leaveWithinMs, 'leaving', Promise.resolve(member.leaveGroup(true))).catch(() => {});
      abandon();
    },
    abandon,
  };
}

function createConsumer(
  clients: ClientFactory,
  { group, topics }: SubscribeOptions,
  options: { retries: number; requestTimeout: number; metadataMaxAge?: number },
): Consumer {
  const settings: ConsumerOptions<Buffer, Buffer, Buffer, Buffer> = {
    ...clients.base(),
    groupId: group,
    autocommit: false,
    ...groupTimes,
    ...options,
  };
  const consumer = new Consumer(settings);
  // An 'error' event without a listener ends the process.
  consumer.on('error', () => {});
  consumer.topics.trackAll(...topics);
  return consumer;
}
