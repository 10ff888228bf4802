/** Recipes that people publish, and why each breaks. */
import { points as ownPoints } from '../chaos/system/places.ts';
import type { Kind, Substitutes } from '../system/programs.ts';

export interface Entry {
  name: string;
  room: 'edge' | 'relay' | 'inbox';
  /** What people say. */
  recipe: string;
  substitutes: Substitutes;
  /** Where it can be killed, by the kind of program. */
  points: Readonly<Partial<Record<Kind, readonly string[]>>>;
  /** Why it breaks. */
  why: string;
  /** Wires that are away for a while, all at once: of what kills alone do not break. Defaults to none. */
  outages?: readonly string[];
  /** The share of orders that have an effect while nothing goes wrong. Defaults to 1. */
  delivers?: number;
  expects: 'violated' | 'clean';
  /** What it brings about, if it is wrong. */
  shows?: Shows;
}

type Shows = 'lost' | 'doubled' | 'phantom' | 'outOfOrder' | undefined;

function inbox(name: string, shows: Shows, points: readonly string[], recipe: string, why: string): Entry {
  const substitutes = { payments: script(name) };
  return { name, room: 'inbox', recipe, substitutes, points: { payments: points }, why, expects: 'violated', shows };
}

function relay(name: string, shows: Shows, points: readonly string[], recipe: string, why: string): Entry {
  const substitutes = { relay: script(name) };
  return { name, room: 'relay', recipe, substitutes, points: { relay: points }, why, expects: 'violated', shows };
}

function edge(
  name: string,
  shows: Shows,
  points: readonly string[],
  recipe: string,
  why: string,
  withRelay = true,
): Entry {
  const substitutes = { orders: script(name), ...(withRelay ? {} : { relay: script('no-relay') }) };
  return { name, room: 'edge', recipe, substitutes, points: { orders: points }, why, expects: 'violated', shows };
}

/** The right recipe in the same frame. */
function control(entry: Entry): Entry {
  return { ...entry, expects: 'clean' };
}

function script(name: string): string {
  return `lab/gallery/recipes/${name}.ts`;
}

export const entries: readonly Entry[] = [
  edge(
    'keys-in-memory',
    'doubled',
    ['recipe:committed'],
    'a map from key to answer in the process',
    'A retry may go to another process, and a process ends some day. Neither knows the map. The order is made again.',
  ),
  edge(
    'key-looked-up',
    'doubled',
    ['recipe:checked'],
    'look the key up; if it is not there, work and write it',
    'Two requests with one key can look at the same moment. Neither sees the other, because neither has committed. Both make the order.',
  ),
  edge(
    'key-committed-first',
    'lost',
    ['recipe:claimed'],
    'claim the key in a transaction of its own, then work',
    'A death between the two leaves a key without an order. Every retry finds the key and is told that all is well. The order never comes.',
  ),
  edge(
    'saved-then-published',
    'lost',
    ['recipe:committed'],
    'save the order, then publish its event',
    'Database and broker have no transaction in common. A death between the two leaves an order of which nobody hears. Nothing remembers that the event is owed.',
    false,
  ),
  edge(
    'published-then-saved',
    'phantom',
    ['recipe:published'],
    'publish the event, then commit the order',
    'The commit may fail or never come. Then an event is out of something that never was. Whoever consumes it charges for nothing.',
    false,
  ),
  relay(
    'cursor-by-id',
    'lost',
    ['recipe:sent'],
    'publish where id > last, and remember the last id',
    'An id is drawn when the row is written, and the row is seen when it is committed. A transaction that draws first may commit last. By then the cursor has passed its id.',
  ),
  relay(
    'marked-then-sent',
    'lost',
    ['recipe:marked'],
    'mark rows as published, commit, then publish',
    'A death between the two leaves rows that are marked and were never sent. Nobody looks at them again. That is at most once, not at least once.',
  ),
  {
    ...relay(
      'skip-locked',
      'outOfOrder',
      ['recipe:locked'],
      'several relays with FOR UPDATE SKIP LOCKED on rows',
      'SKIP LOCKED gives each relay the next free rows. Two rows of one key go to two relays. Which of them is published first is left to chance.',
    ),
    // Two events of one order have to wait together.
    outages: ['relay-1:postgres', 'relay-2:postgres'],
  },
  relay(
    'not-acknowledged',
    'lost',
    ['recipe:sent'],
    'send without waiting for the acknowledgement',
    'What was handed to the client is not in the log yet. A broker that dies, a connection that is cut, or the death of the process takes it along. It is marked as published all the same.',
  ),
  relay(
    'notified-only',
    'lost',
    ['recipe:heard'],
    'publish what NOTIFY tells',
    'A notification reaches who listens at that moment. A relay that is being started hears nothing. Nobody asks the table what it has missed.',
  ),
  inbox(
    'nothing-remembered',
    'doubled',
    ['recipe:charged'],
    'commit the offset after the work; the producer is idempotent',
    'A death between the commit and the offset brings the message again. Producer idempotence ends at the broker. Nothing tells the second from the first.',
  ),
  inbox(
    'ids-in-memory',
    'doubled',
    ['recipe:charged'],
    'a set of ids in the process',
    'The set is gone with its process. A rebalance gives the messages to another one, which has a set of its own. Both cases bring what was done before.',
  ),
  inbox(
    'check-then-insert',
    'doubled',
    ['recipe:checked'],
    'SELECT the id; if it is not there, work and INSERT it',
    'Two deliveries of one message can ask at the same moment. Neither sees the other, because neither has committed. Both do the work.',
  ),
  inbox(
    'mark-first',
    'lost',
    ['recipe:marked'],
    'mark the id on another connection, then work',
    'The mark is committed by itself. A death before the work leaves a message that counts as done. Its redelivery is skipped.',
  ),
  inbox(
    'mark-last',
    'doubled',
    ['recipe:charged'],
    'work, commit, then mark the id',
    'The work is committed by itself. A death before the mark leaves it done and not known. Its redelivery does it again.',
  ),
  inbox(
    'key-as-id',
    'lost',
    ['recipe:marked'],
    'dedup by the key of the record',
    'A key says which order, and an order has many events. The first of them marks all. The others are skipped as duplicates.',
  ),
  inbox(
    'offset-as-id',
    'doubled',
    ['recipe:marked'],
    'dedup by partition and offset',
    'An offset names a place in a log, not a message. A relay that dies after the acknowledgement publishes again. The same message then stands at two places.',
  ),
  inbox(
    'offset-first',
    'lost',
    ['recipe:marked'],
    'commit the offset, then work (as automatic commits do)',
    'The broker believes that the message is done. A death before the commit takes the work back. Nobody delivers it again.',
  ),
  inbox(
    'highest-offset',
    'lost',
    ['recipe:marked'],
    'work in parallel, commit the offset of whichever is done',
    'An offset says that everything before it is done. The one that is done first may have older ones beside it. A death then loses those.',
  ),
  inbox(
    'guessed-ttl',
    'doubled',
    ['recipe:marked'],
    'forget ids after a few seconds',
    'How late a duplicate can come is decided by offsets, retention and operators, and not by us. What comes after the guess is new again. It is done a second time.',
  ),
  inbox(
    'count-not-read',
    'doubled',
    ['recipe:marked'],
    'INSERT ... ON CONFLICT DO NOTHING, then work',
    'The statement succeeds whether it has inserted or not. Only the count of rows tells. The work is done for duplicates too.',
  ),
  {
    ...inbox(
      'given-up',
      'lost',
      ['recipe:marked'],
      'three attempts, then drop the message',
      'A database that is restarted is away for longer than three attempts. The message is not at fault. It is lost all the same.',
    ),
    outages: ['payments-1:postgres', 'payments-2:postgres'],
  },
  {
    ...inbox(
      'one-inbox-for-two',
      'lost',
      ['recipe:marked'],
      'one table of ids for several handlers',
      'An id alone does not say who has dealt with it. Whichever handler comes first marks it for all. The other never runs.',
    ),
    delivers: 0.5,
  },
  control(
    edge(
      'all-in-one',
      undefined,
      ['recipe:claimed'],
      'the control: key, order, event and answer in one transaction',
      'It is right, and slow. It shows that what breaks the others at the edge is the recipe, and not the frame around them.',
    ),
  ),
  control(
    relay(
      'sent-then-marked',
      undefined,
      ['recipe:sent'],
      'the control: one at a time, which publishes, waits for the acknowledgement, and then marks',
      'It is right, and slow. It shows that what breaks the other relays is the recipe, and not the frame around them.',
    ),
  ),
  control(
    inbox(
      'the-textbook',
      undefined,
      ['recipe:marked'],
      'the control: id and effect in one transaction, a message at a time',
      'It is right, and slow. It shows that what breaks the other consumers is the recipe, and not the frame around them.',
    ),
  ),
  {
    name: 'ours',
    room: 'inbox',
    recipe: 'twiceproof, all of it',
    substitutes: {},
    points: ownPoints,
    why: 'Claim, effect and outbox row are one transaction, and inbox row and effect are one. What lies between the two may duplicate, delay and reorder.',
    expects: 'clean',
  },
];
