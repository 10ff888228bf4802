import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { AclOperations, AclPermissionTypes, Admin, ResourcePatternTypes, ResourceTypes } from '@platformatic/kafka';
import { startKafka } from '@twiceproof/infra/kafka';
import { kafkaTransport } from './kafka.ts';

// A broker of its own, that asks who may do what.
const cluster = await startKafka({
  brokers: 1,
  settings: {
    'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
    'allow.everyone.if.no.acl.found': 'true',
  },
});
const admin = new Admin({ clientId: 'acl', bootstrapBrokers: [cluster.bootstrap], retries: 20, retryDelay: 250 });
const transport = kafkaTransport({ bootstrap: cluster.bootstrap });
const publisher = transport.publisher();
after(async () => {
  await publisher.close();
  await transport.close();
  await admin.close();
  await cluster.close();
});

/** The controller answers when it has written a rule down; the broker goes by it a moment later. */
async function untilOneIs(outcome: 'refused' | 'acknowledged', topic: string): Promise<void> {
  while ((await publisher.publish([record(topic, 0)]))[0]?.outcome !== outcome) await delay(20);
}

const record = (topic: string, n: number) => ({ topic, key: `key-${n}`, value: Buffer.from(String(n)) });

for (const operation of ['WRITE', 'DESCRIBE', 'ALL'] as const) {
  test(
    `a topic to which ${operation} is denied is refused, whoever else is published to; allowed again, it is taken`,
    { timeout: 30_000 },
    async () => {
      const [denied, open] = [`denied-${operation}`, `open-${operation}`];
      await admin.createTopics({ topics: [denied, open], partitions: 3, replicas: 1 });
      const rule = {
        resourceType: ResourceTypes.TOPIC,
        resourceName: denied,
        resourcePatternType: ResourcePatternTypes.LITERAL,
        principal: 'User:*',
        host: '*',
        operation: AclOperations[operation],
        permissionType: AclPermissionTypes.DENY,
      };
      await admin.createAcls({ creations: [rule] });
      await untilOneIs('refused', denied);
      const records = Array.from({ length: 20 }, (_, n) => record(n % 2 === 0 ? denied : open, n));
      const told = await publisher.publish(records);
      told.forEach((each, n) => {
        const expected = n % 2 === 0 ? 'refused' : 'acknowledged';
        assert.equal(
          each.outcome,
          expected,
          JSON.stringify(each, (_, value: unknown) => String(value)),
        );
        if (each.outcome === 'refused') assert.equal(each.error.code, 'TP_NOT_AUTHORIZED');
      });
      await admin.deleteAcls({ filters: [rule] });
      await untilOneIs('acknowledged', denied);
      const again = await publisher.publish(records.filter(({ topic }) => topic === denied));
      assert.deepEqual(new Set(again.map(({ outcome }) => outcome)), new Set(['acknowledged']));
    },
  );
}
