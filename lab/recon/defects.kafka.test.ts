/** A judge that has never convicted is worth nothing: each defect is planted alone, and exactly that must be found. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { noConfig } from './config.ts';
import { court, found } from './judge-under-test.ts';
import type { Delta } from './invariants.ts';
import { addEvent, addOrder, soundRun, uuidv7, type Call, type Run } from './run-under-test.ts';

const { judged, close } = await court();
after(close);

type Expected = Partial<Record<Delta, string[]>>;
type Answer = NonNullable<Call['answer']>;

/** Of a sound run. Order n has 1 + n % 3 versions. */
interface Planting {
  run: Run;
  id(n: number): string;
  /** The key of the intent that made this version. */
  key(n: number, version: number): string;
  msg(n: number, version: number): string;
  calls(n: number, version: number): Call[];
  /** Takes away what one event has left from this hop on. */
  forget(n: number, version: number, from: 'outbox' | 'records' | 'inbox' | 'effects'): void;
}

function planting(): Planting {
  const run = soundRun();
  const ids = run.orders.map(({ order_id }) => order_id);
  const accounts = run.orders.map(({ account_id }) => account_id);
  const key = (n: number, version: number): string => `k${accounts[n]}-${version}`;
  const messages = new Map(run.effects.map(({ order_id, version, msg_id }) => [`${order_id}/${version}`, msg_id]));
  const msg = (n: number, version: number): string => messages.get(`${ids[n]}/${version}`)!;
  return {
    run,
    id: (n) => ids[n]!,
    key,
    msg,
    calls: (n, version) => run.calls.filter((call) => call.key === key(n, version)),
    forget: (n, version, from) => {
      const isIt = (row: { msg_id?: string; headers?: Record<string, string> }): boolean =>
        (row.msg_id ?? row.headers?.['ce_id']) === msg(n, version);
      const hops = ['outbox', 'records', 'inbox', 'effects'] as const;
      for (const hop of hops.slice(hops.indexOf(from))) remove<(typeof run)[typeof hop][number]>(run[hop], isIt);
    },
  };
}

function remove<T>(rows: T[], isIt: (row: T) => boolean): void {
  rows.splice(0, rows.length, ...rows.filter((row) => !isIt(row)));
}

function swap<T>(rows: T[], one: (row: T) => boolean, other: (row: T) => boolean): void {
  const [a, b] = [rows.findIndex(one), rows.findIndex(other)];
  [rows[a], rows[b]] = [rows[b]!, rows[a]!];
}

function ofAnother(effect: Run['effects'][number]): Run['effects'][number] {
  return { ...effect, consumer: 'billing' };
}

/** Of an event, in the outbox and on the topic. */
function withPayload(run: Run, id: string, change: (value: string) => string): void {
  const event = run.outbox.find(({ msg_id }) => msg_id === id)!;
  const record = run.records.find(({ headers }) => headers['ce_id'] === id)!;
  assert.notEqual(change(event.payload), event.payload);
  event.payload = record.value = change(event.payload);
}

/** Whatever was answered to this version's key, it was this. */
function answerAll(calls: readonly Call[], answer: Partial<Answer>): void {
  for (const call of calls) call.answer = { ...call.answer!, ...answer };
}

const defects: Record<string, (planted: Planting) => Expected> = {
  'lost before the order': ({ run, id, key, forget }) => {
    for (const version of [1, 2]) forget(1, version, 'outbox');
    const lost = id(1);
    remove(run.orders, ({ order_id }) => order_id === lost);
    remove(run.charges, ({ order_id }) => order_id === lost);
    return { lost: [`order:${key(1, 1)}`, `order:${key(1, 2)}`] };
  },
  'lost before the order, and the answer did not say which': ({ run, id, calls, key, forget }) => {
    forget(3, 1, 'outbox');
    answerAll(calls(3, 1), { order_id: null, version: null });
    const lost = id(3);
    remove(run.orders, ({ order_id }) => order_id === lost);
    remove(run.charges, ({ order_id }) => order_id === lost);
    return { lost: [`order:${key(3, 1)}`], answeredDifferently: [`key:${key(3, 1)}`] };
  },
  'a change lost before the order': ({ run, key, forget }) => {
    forget(1, 2, 'outbox');
    Object.assign(run.orders[1]!, { version: 1, status: 'created' });
    return { lost: [`order:${key(1, 2)}`] };
  },
  'a change lost before the order, and the answer did not say which': ({ run, id, key, calls, forget }) => {
    forget(1, 2, 'outbox');
    Object.assign(run.orders[1]!, { version: 1, status: 'created' });
    answerAll(calls(1, 2), { version: null });
    return { lost: [`status:${id(1)}/paid`], answeredDifferently: [`key:${key(1, 2)}`] };
  },
  'an answer that does not say which order': ({ calls, key }) => {
    calls(0, 1).find(({ door }) => door === 'grpc')!.answer!.order_id = null;
    return { answeredDifferently: [`key:${key(0, 1)}`] };
  },
  'an answer that does not say which version': ({ calls, key }) => {
    answerAll(calls(1, 2), { version: null });
    return { answeredDifferently: [`key:${key(1, 2)}`] };
  },
  'a change that is answered with no version, which over gRPC is 0': ({ calls, key }) => {
    answerAll(calls(1, 2), { version: 0 });
    return { answeredDifferently: [`key:${key(1, 2)}`] };
  },
  'an answer that does not say which state': ({ calls, key }) => {
    answerAll(calls(1, 2), { status: null });
    return { answeredDifferently: [`key:${key(1, 2)}`] };
  },
  'another state at the other door': ({ calls, key }) => {
    calls(0, 1).find(({ door }) => door === 'grpc')!.answer!.status = 'paid';
    return { answeredDifferently: [`key:${key(0, 1)}`] };
  },
  'an answer with another state than its event': ({ calls, id }) => {
    answerAll(calls(1, 2), { status: 'shipped' });
    return { wrongContent: [`event:${id(1)}/2`] };
  },
  'an event that does not say its state': ({ run, id, msg }) => {
    withPayload(run, msg(0, 1), (value) => value.replace(/,"status":"\w+"/, ''));
    return { wrongContent: [`event:${id(0)}/1`] };
  },
  'an event whose amount is no number': ({ run, id, msg }) => {
    withPayload(run, msg(0, 1), (value) => value.replace(/("amount_cents":)\d+/, '$1"x"'));
    return { wrongContent: [`event:${id(0)}/1`] };
  },
  'lost by one of two consumers': ({ run, id, msg }) => {
    run.effects.push(...run.effects.filter((effect) => effect.msg_id !== msg(1, 2)).map(ofAnother));
    return { lost: [`effect:billing/${id(1)}/2`] };
  },
  'lost between order and outbox': ({ id, forget }) => {
    forget(1, 2, 'outbox');
    return { lost: [`outbox:${id(1)}/2`] };
  },
  'lost between order and outbox, and never answered': ({ id, forget }) => {
    forget(11, 3, 'outbox');
    return { lost: [`outbox:${id(11)}/3`] };
  },
  'lost between outbox and topic': ({ id, forget }) => {
    forget(1, 2, 'records');
    return { lost: [`topic:${id(1)}/2`] };
  },
  'lost between topic and inbox': ({ id, forget }) => {
    forget(1, 2, 'inbox');
    return { lost: [`inbox:${id(1)}/2`] };
  },
  'an effect that the inbox does not remember': ({ run, id, msg }) => {
    remove(run.inbox, ({ msg_id }) => msg_id === msg(1, 2));
    return { lost: [`inbox:${id(1)}/2`] };
  },
  'an effect that only another consumer remembers': ({ run, id, msg }) => {
    run.inbox.find(({ msg_id }) => msg_id === msg(1, 2))!.consumer = 'billing';
    return { lost: [`inbox:${id(1)}/2`] };
  },
  'lost between inbox and effect': ({ id, forget }) => {
    forget(1, 2, 'effects');
    return { lost: [`effect:${id(1)}/2`] };
  },
  'an effect without its charge': ({ run, id }) => {
    remove(run.charges, ({ order_id }) => order_id === id(1));
    return { lost: [`charge:${id(1)}/1`] };
  },
  'an effect without its state': ({ run, id }) => {
    run.states.set(id(1), undefined);
    return { lost: [`state:${id(1)}/2`] };
  },
  'an older state in the place of a newer one': ({ run, id }) => {
    run.states.set(id(2), { status: 'paid', version: 2 });
    return { lost: [`state:${id(2)}/3`] };
  },
  'two events with one id, of which the inbox takes the first': ({ run, id, msg, forget }) => {
    const [first, second] = [msg(2, 2), msg(2, 3)];
    forget(2, 3, 'inbox');
    run.outbox.find(({ msg_id }) => msg_id === second)!.msg_id = first;
    run.records.find(({ headers }) => headers['ce_id'] === second)!.headers['ce_id'] = first;
    return { lost: [`effect:${id(2)}/3`], doubled: [`outbox:${first}`], altered: [`message:${first}`] };
  },

  'two orders for one key': ({ run, key }) => {
    const again = soundRun({ orders: 1 });
    for (const name of ['orders', 'outbox', 'records', 'inbox', 'charges', 'effects'] as const) {
      (run[name] as unknown[]).push(...again[name]);
    }
    return { doubled: [`order:${key(0, 1)}`] };
  },
  'two outbox rows for one event': ({ run, id }) => {
    addEvent(run, { order_id: id(1), status: 'paid', version: 2 }, 1);
    return { doubled: [`outbox:${id(1)}/2`, `effect:payments/${id(1)}/2`] };
  },
  'two charges for one order': ({ run, id }) => {
    run.charges.push({ ...run.charges[4]!, charge_id: uuidv7() });
    return { doubled: [`charge:${id(4)}`] };
  },
  'two effects of one message': ({ run, msg }) => {
    run.effects.push(run.effects.find(({ msg_id }) => msg_id === msg(1, 2))!);
    return { doubled: [`effect:payments/${msg(1, 2)}`] };
  },
  'one change of status done twice': ({ run, id }) => {
    addEvent(run, { order_id: id(1), status: 'paid', version: 3 }, 1);
    run.orders[1]!.version = 3;
    return { doubled: [`status:${id(1)}/paid`] };
  },

  'an order that nobody asked for': ({ run }) => {
    addOrder(run, 7 * 2 ** 32 + 1_000, 0, false);
    remove(run.calls, ({ account_id }) => account_id === 7 * 2 ** 32 + 1_000);
    return { phantom: [`order:${run.orders.at(-1)!.order_id}`] };
  },
  'an event of an order that is not there': ({ run }) => {
    addEvent(run, { order_id: uuidv7(), status: 'created', version: 1 }, 1);
    const { msg_id, order_id } = run.outbox.at(-1)!;
    // It has no amount either.
    return { phantom: [`outbox:${msg_id}`], lost: [`charge:${order_id}/1`], wrongContent: [`event:${order_id}/1`] };
  },
  'a change that nobody asked for': ({ run, id }) => {
    addEvent(run, { order_id: id(1), status: 'cancelled', version: 3 }, 1);
    Object.assign(run.orders[1]!, { version: 3, status: 'cancelled' });
    return { phantom: [`status:${id(1)}/cancelled`] };
  },
  'an event that the order knows nothing of': ({ run, id }) => {
    addEvent(run, { order_id: id(1), status: 'cancelled', version: 3 }, 1);
    return { phantom: [`outbox:${run.outbox.at(-1)!.msg_id}`, `status:${id(1)}/cancelled`] };
  },
  'an event whose payload cannot be read': ({ run, msg, id }) => {
    const broken = '{"order_id": ';
    run.outbox.find(({ msg_id }) => msg_id === msg(1, 2))!.payload = broken;
    run.records.find(({ headers }) => headers['ce_id'] === msg(1, 2))!.value = broken;
    const effect = run.effects.findIndex(({ msg_id }) => msg_id === msg(1, 2)) + 1;
    return {
      lost: [`outbox:${id(1)}/2`, `effect:${id(1)}/0`],
      phantom: [`outbox:${msg(1, 2)}`, `effect:${effect}`],
    };
  },
  'a message that was never appended': ({ run, id }) => {
    run.records.push({ ...run.records[0]!, headers: { ce_id: uuidv7(), ce_type: 'order.created' } });
    assert.equal(run.records[0]!.key, id(0));
    return { phantom: [`message:0/${run.records.filter(({ partition }) => partition === 0).length - 1}`] };
  },
  'a message without an id': ({ run }) => {
    run.records.push({ ...run.records[0]!, headers: {} });
    return { phantom: [`message:0/${run.records.filter(({ partition }) => partition === 0).length - 1}`] };
  },
  'a charge of an order that is not there': ({ run }) => {
    run.charges.push({ charge_id: uuidv7(), order_id: uuidv7(), amount_cents: 1 });
    return { phantom: [`charge:${run.charges.at(-1)!.charge_id}`] };
  },
  'an effect of a message that was never appended': ({ run, id }) => {
    run.effects.push({ consumer: 'payments', msg_id: uuidv7(), order_id: id(1), version: 3 });
    return { phantom: [`effect:${run.effects.length}`] };
  },

  'a state of an order that had no effect': ({ run }) => {
    const orderId = uuidv7();
    run.states.set(orderId, { status: 'created', version: 1 });
    return { phantom: [`state:${orderId}/1`] };
  },
  'a state that is newer than every event': ({ run, id }) => {
    run.states.set(id(1), { status: 'shipped', version: 3 });
    return { phantom: [`state:${id(1)}/3`] };
  },

  'a retry whose key is taken for that of another request': ({ calls, key }) => {
    const answer = { verdict: 'fail', code: 409, hash: 'other', order_id: null, version: null } as const;
    calls(0, 1)[1]!.answer = answer;
    return { answeredDifferently: [`key:${key(0, 1)}`] };
  },
  'a key that is taken for that of another request for ever': ({ run }) => {
    const answer = { verdict: 'fail', code: 9, hash: 'other', order_id: null, version: null } as const;
    run.calls.push({ ...run.calls.at(-1)!, door: 'grpc', answer });
    return { answeredDifferently: [`key:${run.calls.at(-1)!.key}`] };
  },

  'messages of a key in the wrong order': ({ run, id, msg }) => {
    const isOf = (version: number) => (record: Run['records'][number]) => record.headers['ce_id'] === msg(2, version);
    swap(run.records, isOf(2), isOf(3));
    return { outOfOrder: [`message:${id(2)}/2`] };
  },
  'a key in two partitions': ({ run, id, msg }) => {
    run.records.find(({ headers }) => headers['ce_id'] === msg(2, 3))!.partition = 0;
    return { outOfOrder: [`key:${id(2)}`] };
  },
  'effects of a key in the wrong order': ({ run, id, msg }) => {
    const isOf = (version: number) => (effect: Run['effects'][number]) => effect.msg_id === msg(2, version);
    swap(run.effects, isOf(1), isOf(3));
    return { outOfOrder: [`effect:payments/${id(2)}/1`, `effect:payments/${id(2)}/2`] };
  },

  'two answers at one door': ({ calls, key }) => {
    calls(0, 1)[1]!.answer!.hash = 'another';
    return { answeredDifferently: [`key:${key(0, 1)}`] };
  },
  'another version at the other door': ({ calls, key }) => {
    calls(0, 1).find(({ door }) => door === 'grpc')!.answer!.version = 2;
    return { answeredDifferently: [`key:${key(0, 1)}`] };
  },
  'another order at the other door': ({ calls, id, key }) => {
    calls(0, 1).find(({ door }) => door === 'grpc')!.answer!.order_id = id(1);
    return { answeredDifferently: [`key:${key(0, 1)}`] };
  },
  'one version told to two keys': ({ calls, id }) => {
    answerAll(calls(2, 2), { version: 3 });
    return { answeredDifferently: [`event:${id(2)}/3`], wrongContent: [`event:${id(2)}/3`] };
  },
  'the answer names another order than was asked for': ({ calls, id, key }) => {
    answerAll(calls(1, 2), { order_id: id(2), version: 2 });
    return { answeredDifferently: [`event:${id(2)}/2`, `key:${key(1, 2)}`] };
  },
  'the answer names the order of another account': ({ calls, id, key }) => {
    answerAll(calls(1, 1), { order_id: id(2) });
    return { answeredDifferently: [`event:${id(2)}/1`, `key:${key(1, 1)}`] };
  },
  'ok, and then no such thing': ({ calls, key }) => {
    answerAll(calls(0, 1).slice(1, 2), { verdict: 'fail', code: 404 });
    return { answeredDifferently: [`key:${key(0, 1)}`] };
  },
  'refused, and done': ({ calls, key }) => {
    answerAll(calls(3, 1), { verdict: 'fail', code: 422, order_id: null, version: null });
    return { refusedButDone: [`order:${key(3, 1)}`] };
  },
  'its outcome is unknown, then refused, and done': ({ run, calls, key }) => {
    const [first] = calls(3, 1);
    answerAll(calls(3, 1), { verdict: 'fail', code: 422, order_id: null, version: null });
    run.calls.push({ ...first!, answer: { verdict: 'unknown', code: 0, hash: null, order_id: null, version: null } });
    return { refusedButDone: [`order:${key(3, 1)}`] };
  },
  'the outcome of a change is unknown, then refused, and done': ({ run, calls, id }) => {
    const [first] = calls(1, 2);
    answerAll(calls(1, 2), { verdict: 'fail', code: 404, order_id: null, version: null });
    run.calls.push({ ...first!, answer: { verdict: 'unknown', code: 0, hash: null, order_id: null, version: null } });
    return { refusedButDone: [`status:${id(1)}/paid`] };
  },
  'a change refused, and done': ({ calls, id }) => {
    answerAll(calls(1, 2), { verdict: 'fail', code: 404, order_id: null, version: null });
    return { refusedButDone: [`status:${id(1)}/paid`] };
  },

  'published again with other bytes': ({ run, msg }) => {
    run.records.push({ ...run.records[0]!, headers: { ...run.records[0]!.headers, more: '1' } });
    return { altered: [`message:${msg(0, 1)}`] };
  },
  'published with other bytes than were committed': ({ run, msg }) => {
    run.records[0]!.value += ' ';
    return { altered: [`message:${msg(0, 1)}`] };
  },
  'published under another key': ({ run, msg }) => {
    run.records[0]!.key = uuidv7();
    return { altered: [`message:${msg(0, 1)}`] };
  },
  'published as another type': ({ run, msg }) => {
    run.records[0]!.headers['ce_type'] = 'order.status_changed';
    return { altered: [`message:${msg(0, 1)}`] };
  },
  'published without its type': ({ run, msg }) => {
    delete run.records[0]!.headers['ce_type'];
    return { altered: [`message:${msg(0, 1)}`] };
  },
  'another amount charged': ({ run }) => {
    run.charges[0]!.amount_cents += 1;
    return { wrongContent: [`charge:${run.charges[0]!.charge_id}`] };
  },
  'another amount ordered': ({ run, id }) => {
    run.orders[0]!.amount_cents += 1;
    return { wrongContent: [`order:${id(0)}`, `event:${id(0)}/1`] };
  },
  "another tenant's order": ({ run, id }) => {
    run.orders[0]!.tenant = 'tenant-2';
    return { wrongContent: [`order:${id(0)}`] };
  },
  'another status than was asked for': ({ run, calls, id }) => {
    for (const call of calls(2, 2)) call.status = 'cancelled';
    assert.equal(run.orders[2]!.status, 'shipped');
    return { wrongContent: [`event:${id(2)}/2`], phantom: [`status:${id(2)}/paid`] };
  },
  'an order with another status than its last event': ({ run, id }) => {
    run.orders[0]!.status = 'cancelled';
    return { wrongContent: [`order:${id(0)}`] };
  },
  'another state than its event says': ({ run, id }) => {
    run.states.set(id(2), { status: 'cancelled', version: 3 });
    return { wrongContent: [`state:${id(2)}/3`] };
  },
  'a key that is not remembered': ({ run, key }) => {
    remove(run.claims, (claim) => claim.key === key(1, 2));
    return { unclaimed: [`key:${key(1, 2)}`] };
  },

  'held as late': ({ run, id, msg, forget }) => {
    forget(1, 2, 'effects');
    run.held.push({ kind: 'late', msg_id: msg(1, 2), order_id: id(1) });
    return { late: [`late:${msg(1, 2)}`] };
  },
  'parked by the consumer': ({ run, id, msg, forget }) => {
    forget(1, 2, 'effects');
    run.held.push({ kind: 'parked', msg_id: msg(1, 2), order_id: id(1) });
    return { parked: [`parked:${msg(1, 2)}`] };
  },
  'parked by the relay': ({ run, id, msg, forget }) => {
    forget(1, 2, 'records');
    run.parked.push({ msg_id: msg(1, 2), order_id: id(1) });
    return { parked: [`outbox:${msg(1, 2)}`] };
  },
  quarantined: ({ run, id, msg, forget }) => {
    forget(1, 2, 'effects');
    run.held.push({ kind: 'dead', msg_id: msg(1, 2), order_id: id(1) });
    return { quarantined: [`dead:${msg(1, 2)}`] };
  },
};

test('convicted: lost by one of two consumers, all of it', async () => {
  const run = soundRun({ orders: 1 });
  const config = { ...noConfig, consumers: ['payments', 'billing'] };
  assert.deepEqual(found(await judged([run], { config })), { lost: [`effect:billing/${run.orders[0]!.order_id}/1`] });
});

for (const [name, plant] of Object.entries(defects)) {
  test(`convicted: ${name}`, async () => {
    const planted = planting();
    const expected = plant(planted);
    const report = await judged([planted.run]);
    assert.deepEqual(report.reasons, []);
    for (const ids of Object.values(expected)) ids.sort();
    assert.deepEqual(withoutTopic(found(report)), expected);
    assert.equal(report.verdict, 'violated');
  });
}

/** The name of the topic is another each time. */
function withoutTopic(all: Expected): Expected {
  return JSON.parse(JSON.stringify(all).replaceAll(/message:[^"/]+\/(\d+\/\d+)"/g, 'message:$1"')) as Expected;
}
