import { Admin, ConfigResourceTypes } from '@platformatic/kafka';
import { TwiceproofError } from '../errors.ts';
import type { BrokerTimes, TopicNeeds, TopicProblem } from '../transport.ts';
import { discard, doneWithin, type ClientFactory } from './kafka-client.ts';
import { saysUnknownTopic, toTwiceproofError } from './kafka-errors.ts';

const askWithinMs = 10_000;
/** With three copies, of which two must have a record before it is acknowledged, any one machine may be lost. */
const enoughReplicas = 3;
const enoughInSync = 2;

const settingNames = [
  'cleanup.policy',
  'max.message.bytes',
  'min.insync.replicas',
  'unclean.leader.election.enable',
] as const;

/** What the brokers really do with a topic, wherever that is set. */
interface TopicFacts {
  /** Of the partition that has the fewest. */
  replicas: number;
  settings: Record<(typeof settingNames)[number], string>;
}

export async function topicProblems(
  clients: ClientFactory,
  topics: readonly string[],
  needs: TopicNeeds,
): Promise<TopicProblem[]> {
  const asking = async (admin: Admin) => Promise.all(topics.map(async (topic) => describe(admin, topic)));
  const facts = await ask(clients, asking);
  return topics.flatMap((topic, n) => judge(topic, facts[n], needs));
}

const topicTimeNames = ['retention.ms', 'segment.ms'] as const;
const brokerTimeNames = ['log.retention.check.interval.ms', 'offsets.retention.minutes'] as const;

export async function topicTimes(clients: ClientFactory, topics: readonly string[]): Promise<BrokerTimes> {
  const [ofTopics, ofBrokers] = await ask(clients, async (admin) => {
    for (const topic of topics) {
      if (!(await askForTopic(admin, topic))) throw new TwiceproofError('TP_TOPIC_UNKNOWN', topic);
    }
    const { brokers } = await admin.metadata({ topics: [], forceUpdate: true });
    return Promise.all([
      settingsOf(admin, ConfigResourceTypes.TOPIC, topics, topicTimeNames),
      // Of each, because they may be set in the file of one alone.
      settingsOf(admin, ConfigResourceTypes.BROKER, [...brokers.keys()].map(String), brokerTimeNames),
    ]);
  });
  return {
    retentionMs: longest(ofTopics, 'retention.ms'),
    segmentMs: longest(ofTopics, 'segment.ms'),
    checkIntervalMs: longest(ofBrokers, 'log.retention.check.interval.ms'),
    offsetsRetentionMs: longest(ofBrokers, 'offsets.retention.minutes') * 60_000,
  };
}

/** -1 is for ever. What is not told is no time at all: taken for 0 it would make everything too short. */
function longest<Name extends string>(all: readonly Record<Name, string>[], name: Name): number {
  const values = all.map((settings) => Number(settings[name] || Number.NaN));
  if (values.length === 0 || values.some(Number.isNaN)) {
    throw new TwiceproofError('TP_NOT_AUTHORIZED', `the broker does not tell ${name}`);
  }
  return Math.max(...values.map((value) => (value < 0 ? Infinity : value)));
}

/** By a client of its own each time: it is asked once a minute, and one that hangs must not hang for ever. */
async function ask<T>(clients: ClientFactory, question: (admin: Admin) => Promise<T>): Promise<T> {
  const admin = new Admin({ ...clients.base(), retries: 2, timeout: askWithinMs / 2 });
  // An 'error' event without a listener ends the process; every failure also comes back from its call.
  admin.on('error', () => {});
  try {
    return await doneWithin(askWithinMs, 'asking for the topics', question(admin));
  } catch (error) {
    throw toTwiceproofError(error, 'asking for the topics');
  } finally {
    // Its close takes a callback where that of the other clients takes whether to use force.
    discard({ connections: admin.connections, close: async () => admin.close() });
  }
}

/** Undefined where there is no such topic. */
async function describe(admin: Admin, topic: string): Promise<TopicFacts | undefined> {
  const found = await askForTopic(admin, topic);
  if (!found) return undefined;
  const [settings] = await settingsOf(admin, ConfigResourceTypes.TOPIC, [topic], settingNames);
  return { replicas: Math.min(...found.partitions.map(({ replicas }) => replicas.length)), settings: settings! };
}

/** One for each resource. A setting that is not told is missing, or empty. */
async function settingsOf<Name extends string>(
  admin: Admin,
  resourceType: (typeof ConfigResourceTypes)['TOPIC' | 'BROKER'],
  resources: readonly string[],
  names: readonly Name[],
): Promise<Record<Name, string>[]> {
  const described = await admin.describeConfigs({
    resources: resources.map((resourceName) => ({ resourceType, resourceName, configurationKeys: [...names] })),
  });
  return described.map(
    ({ configs }) => Object.fromEntries(configs.map(({ name, value }) => [name, value ?? ''])) as Record<Name, string>,
  );
}

/** One question for each topic, because one unknown topic fails the whole question. */
async function askForTopic(admin: Admin, topic: string) {
  try {
    const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true });
    return topics.get(topic);
  } catch (error) {
    if (saysUnknownTopic(error, topic)) return undefined;
    throw error;
  }
}

function judge(topic: string, facts: TopicFacts | undefined, { recordBytes }: TopicNeeds): TopicProblem[] {
  if (!facts) return [{ topic, kind: 'missing', detail: 'it does not exist, and is not created on the fly' }];
  const { replicas, settings } = facts;
  const policy = settings['cleanup.policy'];
  const maxBytes = Number(settings['max.message.bytes']);
  const inSync = Number(settings['min.insync.replicas']);
  const isUnclean = settings['unclean.leader.election.enable'] === 'true';
  const candidates: [isSo: boolean, kind: TopicProblem['kind'], detail: string][] = [
    [
      policy.split(',').includes('compact'),
      'compacted',
      `cleanup.policy is ${policy}: a message goes when a newer one of its key comes, read or not`,
    ],
    [maxBytes < recordBytes, 'small', `max.message.bytes is ${maxBytes}, and a message may need ${recordBytes}`],
    [replicas < enoughReplicas, 'weak', `it has ${replicas} replicas, not ${enoughReplicas}`],
    [
      inSync < enoughInSync,
      'weak',
      `min.insync.replicas is ${inSync}, not ${enoughInSync}: one machine may have all that is acknowledged`,
    ],
    [
      isUnclean,
      'weak',
      'unclean.leader.election.enable is true: a replica that is behind may delete what the others have',
    ],
  ];
  return candidates.filter(([isSo]) => isSo).map(([, kind, detail]) => ({ topic, kind, detail }));
}
