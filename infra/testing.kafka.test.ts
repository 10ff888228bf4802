import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Consumer } from '@platformatic/kafka';
import { kafkaLeaks } from './leaks.ts';
import { testKafka } from './testing.ts';

const kafka = await testKafka();

test('every topic and group has a name of its own', async () => {
  const topics = [await kafka.createTopic('orders'), await kafka.createTopic('orders', { partitions: 3 })];
  assert.equal(new Set(topics).size, 2);
  assert.notEqual(kafka.group('payments'), kafka.group('payments'));
});

test('the leak check sees a group that still has a member', async () => {
  const groupId = kafka.group('left');
  const leaks = kafkaLeaks(kafka.admin, groupId);
  const consumer = new Consumer({ groupId, clientId: 'leak', bootstrapBrokers: kafka.bootstrap.split(',') });
  consumer.topics.track(await kafka.createTopic('left'));
  await consumer.joinGroup({});
  assert.deepEqual(await leaks.find(), [`group ${groupId} has members`]);
  await consumer.close(true);
  assert.deepEqual(await leaks.find(), []);
});
