/** What people do by hand to a Kafka cluster, as far as the set-up and the tests need it. */
import { Admin, ConfigResourceTypes, ListOffsetTimestamps } from '@platformatic/kafka';

export interface KafkaAdmin {
  /** How many brokers the cluster has; throws when none answers. */
  countBrokers(): Promise<number>;
  createTopic(name: string, options: { partitions: number; config?: Record<string, string> }): Promise<void>;
  /** So many from now on. */
  addPartitions(topic: string, count: number): Promise<void>;
  /** What the brokers are really set to. */
  brokerSettings(names: readonly string[]): Promise<Record<string, string>>;
  /** Of the topic's first partition. */
  countReplicas(topic: string): Promise<number>;
  /** The broker that leads each partition of the topic. */
  leaders(topic: string): Promise<number[]>;
  /** Of those whose names begin with the prefix. */
  deleteTopics(prefix: string): Promise<void>;
  /** Groups with members, among those whose names begin with the prefix. */
  liveGroups(prefix: string): Promise<string[]>;
  deleteGroups(prefix: string): Promise<void>;
  /** Sets a group that has no members back to the beginning of a topic. */
  rewindGroup(group: string, topic: string, partitions: number): Promise<void>;
  /** How many records of the topic stand behind what the group has told the brokers. */
  unread(group: string, topic: string): Promise<number>;
  /** As retention does: what stands before this offset of the first partition is gone. */
  deleteBefore(topic: string, offset: bigint): Promise<void>;
  /** A quota for each client that produces; undefined lifts it. */
  limitProducers(bytesPerSecond: number | undefined): Promise<void>;
  close(): Promise<void>;
}

export function kafkaAdmin(bootstrap: string): KafkaAdmin {
  const admin = new Admin({
    clientId: 'twiceproof-admin',
    bootstrapBrokers: bootstrap.split(','),
    timeout: 10_000,
    connectTimeout: 3_000,
    retries: 5,
    retryDelay: 250,
  });
  const groups = async (prefix: string): Promise<{ id: string; state: string }[]> =>
    [...(await admin.listGroups()).values()].filter(({ id }) => id.startsWith(prefix));
  return {
    countBrokers: async () => (await admin.metadata({ topics: [], forceUpdate: true })).brokers.size,
    createTopic: async (name, { partitions, config = {} }) => {
      const configs = Object.entries(config).map(([key, value]) => ({ name: key, value }));
      // -1: as many replicas as the cluster is set to.
      await admin.createTopics({ topics: [name], partitions, replicas: -1, configs });
    },
    addPartitions: async (topic, count) => {
      await admin.createPartitions({ topics: [{ name: topic, count, assignments: null }] });
    },
    brokerSettings: async (names) => {
      const [broker] = (await admin.metadata({ topics: [], forceUpdate: true })).brokers.keys();
      const resource = {
        resourceType: ConfigResourceTypes.BROKER,
        resourceName: String(broker),
        configurationKeys: [...names],
      };
      const [described] = await admin.describeConfigs({ resources: [resource] });
      return Object.fromEntries((described?.configs ?? []).map(({ name, value }) => [name, value ?? '']));
    },
    countReplicas: async (topic) => {
      const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true });
      return topics.get(topic)?.partitions[0]?.replicas.length ?? 0;
    },
    leaders: async (topic) => {
      const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true });
      return (topics.get(topic)?.partitions ?? []).map(({ leader }) => leader);
    },
    deleteTopics: async (prefix) => {
      const topics = (await admin.listTopics()).filter((topic) => topic.startsWith(prefix));
      if (topics.length > 0) await admin.deleteTopics({ topics });
    },
    liveGroups: async (prefix) => (await groups(prefix)).filter(({ state }) => state !== 'Empty').map(({ id }) => id),
    deleteGroups: async (prefix) => {
      const ids = (await groups(prefix)).map(({ id }) => id);
      if (ids.length > 0) await admin.deleteGroups({ groups: ids });
    },
    rewindGroup: async (group, topic, partitions) => {
      const partitionOffsets = Array.from({ length: partitions }, (_, partition) => ({ partition, offset: 0n }));
      await admin.alterConsumerGroupOffsets({ groupId: group, topics: [{ name: topic, partitionOffsets }] });
    },
    unread: async (group, topic) => {
      const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true });
      const timestamp = ListOffsetTimestamps.LATEST;
      const partitions = (topics.get(topic)?.partitions ?? []).map((_, partitionIndex) => ({
        partitionIndex,
        timestamp,
      }));
      const [ends] = await admin.listOffsets({ topics: [{ name: topic, partitions }] });
      const [ofGroup] = await admin.listConsumerGroupOffsets({ groups: [group] });
      const told = ofGroup?.topics.find(({ name }) => name === topic)?.partitions ?? [];
      return (ends?.partitions ?? []).reduce((sum, { partitionIndex, offset }) => {
        const next = told.find((each) => each.partitionIndex === partitionIndex)?.committedOffset ?? 0n;
        // -1 where it has told nothing.
        return sum + Number(offset - (next > 0n ? next : 0n));
      }, 0);
    },
    deleteBefore: async (topic, offset) => {
      await admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 0, offset }] }] });
    },
    limitProducers: async (bytesPerSecond) => {
      const key = 'producer_byte_rate';
      const limit = { key, value: bytesPerSecond ?? 0, remove: false } as const;
      const op = bytesPerSecond === undefined ? ({ key, remove: true } as const) : limit;
      // Without a name: for all that have no quota of their own.
      const everyClient = [{ entityType: 'client-id' as const, entityName: null }];
      await admin.alterClientQuotas({ entries: [{ entities: everyClient, ops: [op] }] });
    },
    close: async () => admin.close(),
  };
}
