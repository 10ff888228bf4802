import assert from 'node:assert/strict';
import { appendFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { test } from 'node:test';
import { kafkaAdmin } from './kafka-admin.ts';
import { safetySettings } from './kafka-broker.ts';
import { startKafka } from './kafka.ts';
import { listProcesses } from './processes.ts';

async function eventually(condition: () => Promise<boolean>, what: string): Promise<void> {
  const deadline = Date.now() + 30_000;
  while (!(await condition().catch(() => false))) {
    assert.ok(Date.now() < deadline, `within 30 s: ${what}`);
    await delay(100);
  }
}

test('three brokers: one can be killed, frozen, stopped and started again while the others serve', async () => {
  const cluster = await startKafka({ brokers: 3 });
  const admin = kafkaAdmin(cluster.bootstrap);
  try {
    assert.equal(await admin.countBrokers(), 3);
    await admin.createTopic('orders', { partitions: 3 });
    assert.equal(await admin.countReplicas('orders'), 3, 'a topic has three replicas without asking for them');
    const wanted = safetySettings(3);
    assert.deepEqual(await admin.brokerSettings(Object.keys(wanted)), wanted);
    await assert.rejects(admin.createTopic('bad name', { partitions: 1 }));

    const [first, second, third] = cluster.brokers;
    await first!.kill();
    assert.equal(first!.running, false);
    await eventually(async () => (await admin.countBrokers()) === 2, 'the cluster notices the dead broker');
    await first!.start();
    await eventually(async () => (await admin.countBrokers()) === 3, 'the broker is back');

    second!.freeze();
    await eventually(async () => (await admin.countBrokers()) === 2, 'the cluster notices the frozen broker');
    second!.thaw();
    await eventually(async () => (await admin.countBrokers()) === 3, 'the broker goes on');

    await third!.stop();
    assert.equal(third!.running, false);
    await third!.start();
    await eventually(async () => (await admin.countBrokers()) === 3, 'all three are there');
  } finally {
    await admin.close();
    await cluster.close();
  }
  const pids = cluster.brokers.map(({ pid }) => pid);
  assert.ok(!listProcesses().some(({ pid }) => pids.includes(pid)), 'no broker is left');
});

test('a broker that does not come up shows the end of its log, and what to do', async () => {
  const cluster = await startKafka({ brokers: 1 });
  try {
    const [broker] = cluster.brokers;
    await broker!.kill();
    writeFileSync(
      join(cluster.directory, 'broker-1/log/meta.properties'),
      'version=1\ncluster.id=of-another-cluster\nnode.id=7\n',
    );
    appendFileSync(broker!.logFile, '--- before the broken start\n');
    await assert.rejects(broker!.start(), {
      name: 'Refusal',
      message:
        /Kafka broker 1 ended while it started\. The end of .*broker\.log:.*node\.?id.*\n {2}Correct what the log says/is,
    });
  } finally {
    await cluster.close();
  }
});
