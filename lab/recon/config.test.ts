import assert from 'node:assert/strict';
import { test } from 'node:test';
import { configOf, mergeSets, type Config } from './config.ts';

test('a table and its columns become a SELECT, with names that cannot break out of it', () => {
  const columns = { msg_id: 'Id', order_id: 'order"; DROP' };
  const { sets } = configOf({ inbox: { table: 'my schema.t', columns: { msg_id: 'Id' } } }) as Config;
  assert.equal(sets.inbox, 'SELECT "Id" AS msg_id FROM "my schema"."t"');
  const parked = (configOf({ parked: { table: 't', columns } }) as Config).sets.parked;
  assert.equal(parked, 'SELECT "Id" AS msg_id, "order""; DROP" AS order_id FROM "t"');
});

test('every problem is told at once', () => {
  const config = configOf({
    nope: 'SELECT 1',
    orders: null,
    outbox: 'DELETE',
    effects: { table: 't', columns: { x: 'y' } },
    idHeader: 1,
    consumers: 'billing',
  });
  assert.deepEqual(config, {
    problems: [
      'idHeader is the name of a header',
      'consumers is a list of names',
      'unknown set nope; there is intents, orders, outbox, parked, claims, inbox, held, charges, effects, states',
      'orders cannot be left out',
      'outbox: a text is a SELECT',
      'effects has no column x; there is id, consumer, msg_id, order_id, version',
    ],
  });
  assert.deepEqual(configOf([]), { problems: ['it is not a JSON object'] });
});

test('what the file says goes before what is ours, and null leaves a set out', () => {
  const own = { orders: 'SELECT 1', charges: 'SELECT 2', inbox: 'SELECT 3', floor: 'SELECT 4' };
  const merge = (value: object): object => mergeSets(own, configOf(value) as Config);
  assert.deepEqual(merge({}), own);
  assert.deepEqual(merge({ orders: 'SELECT 9', charges: null }), {
    orders: 'SELECT 9',
    inbox: 'SELECT 3',
    floor: 'SELECT 4',
  });
  // The floor is of our inbox, and says nothing of another.
  assert.deepEqual(merge({ inbox: 'SELECT 9' }), { orders: 'SELECT 1', charges: 'SELECT 2', inbox: 'SELECT 9' });
});
