import {
  dropParked,
  parkedKeys,
  parkedMessages,
  releaseParked,
  type Dropped,
  type ParkedMessage,
} from '../sources/parked.ts';
import { publishingName } from '../sources/poll-statements.ts';
import { WrongCall, type Call, type Command } from './call.ts';
import { onDatabase, reading } from './database.ts';
import { publishing, requireOwnCluster } from './publishing.ts';

type Shown = Omit<ParkedMessage, 'payload'> & { payload?: Uint8Array };

export const parkedCommand: Command = {
  summary: 'the keys that wait for a person, and why',
  flags: ['schema', 'aggregate', 'payload', 'limit'],
  about: 'With --aggregate: the messages of that key, in the order in which they will be published.',
  async run(call) {
    const atMost = call.number('limit', { min: 1, max: 1_000_000 }) ?? 100;
    const aggregateId = call.text('aggregate');
    if (call.has('payload') && aggregateId === undefined) throw new WrongCall('--payload needs --aggregate');
    const { schema } = call;
    return onDatabase(async (pool) => {
      if (aggregateId === undefined) {
        const keys = await reading(pool, (tx) => parkedKeys(tx, atMost, schema));
        const lines = keys.map(({ first, behind }) => `${first.aggregateId}: ${describe(first)}; ${behind} behind it`);
        const listed = keys.map(({ aggregateId: key, first, behind }) => ({
          aggregateId: key,
          first: toJson(first),
          behind,
        }));
        call.answer({ keys: listed }, lines.join('\n') || 'Nothing is parked.');
        return 0;
      }
      const messages: Shown[] = await reading(pool, (tx) => parkedMessages(tx, { aggregateId, atMost, schema }));
      const shown = call.has('payload') ? messages : messages.map(({ payload: _, ...rest }) => rest);
      call.answer({ messages: shown.map(toJson) }, shown.map(describe).join('\n') || 'Nothing of this key is parked.');
      return 0;
    });
  },
};

export const releaseCommand: Command = {
  summary: 'publish what is parked of a key, in order',
  flags: ['schema', 'aggregate', 'brokers', 'name', 'max-record-bytes'],
  about:
    'When the cause is gone, for example after max.message.bytes was raised. It may be run again at any time: the ids stay.',
  async run(call) {
    const aggregateId = call.required('aggregate');
    return onDatabase(
      async (pool) =>
        publishing(call, async (publish) => {
          await requireOwnCluster(pool, call.schema);
          const released = await releaseParked(pool, publish, {
            aggregateId,
            schema: call.schema,
            onProgress: (messages) => call.progress(`${messages} published ...`),
          });
          if (released.outcome === 'nothing there') return nothingThere(call);
          const { messages } = released;
          if (released.outcome === 'released') {
            call.answer(released, `Published: ${messages}. Nothing of this key is parked any more.`);
            return 0;
          }
          const why = released.outcome === 'rejected' ? 'still cannot be published' : 'could not be published now';
          call.answer(
            released,
            `Published: ${messages}. Message ${released.id} ${why}: ${released.reason}\n  It is kept, and what is behind it too.`,
          );
          return 1;
        }),
      publishingName,
    );
  },
};

export const dropCommand: Command = {
  summary: 'give up a parked message, or a whole key: it is never published',
  flags: ['schema', 'message', 'aggregate', 'yes'],
  about: 'A single message must be the first of its key. What is dropped is shown, without its payload.',
  async run(call) {
    const [id, aggregateId] = [call.text('message'), call.text('aggregate')];
    if ((id === undefined) === (aggregateId === undefined))
      throw new WrongCall('either --message or --aggregate is needed');
    if (id !== undefined && !/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(id)) {
      throw new WrongCall(`--message is the id of a message, not '${id}'`);
    }
    const { schema } = call;
    return onDatabase(async (pool) => {
      const found = await reading(pool, async (tx) =>
        id === undefined
          ? parkedMessages(tx, { aggregateId: aggregateId!, atMost: mostShown, schema })
          : (await parkedKeys(tx, 1_000_000, schema))
              .map(({ first }) => first)
              .filter((each) => each.id === id.toLowerCase()),
      );
      if (!call.has('yes')) {
        const shown = found.map(({ payload: _, ...rest }: Shown) => rest);
        call.answer(
          { outcome: 'not done', messages: shown.map(toJson) },
          shown.length === 0
            ? 'There is no such message at the head of a key.'
            : `${shown.map(describe).join('\n')}${andMore(shown)}\nTo give it up for good: --yes`,
        );
        return 2;
      }
      const dropped = await dropParked(pool, {
        ...(id === undefined ? { aggregateId: aggregateId! } : { id }),
        schema,
      });
      return tellDropped(call, dropped, found);
    });
  },
};

const mostShown = 1_000;

function andMore(shown: readonly unknown[]): string {
  return shown.length < mostShown ? '' : `\nThese are the first ${mostShown}; there may be more, which go with them.`;
}

function tellDropped(call: Call, dropped: Dropped, found: readonly Shown[]): number {
  if (dropped.outcome === 'nothing there') return nothingThere(call);
  if (dropped.outcome === 'not the first') {
    call.answer(dropped, `Nothing was dropped: message ${dropped.first} of the same key waits before it.`);
    return 1;
  }
  const shown = found.map(({ payload: _, ...rest }) => rest);
  call.answer(
    { ...dropped, dropped: shown.map(toJson) },
    `Dropped: ${dropped.messages}\n${shown.map(describe).join('\n')}${andMore(shown)}`,
  );
  return 0;
}

function nothingThere(call: Call): number {
  call.answer({ outcome: 'nothing there', messages: 0 }, 'Nothing of this is parked.');
  return 1;
}

function describe({ id, type, topic, reason, parkedAt, payload }: Shown): string {
  const bytes = payload === undefined ? '' : `\n  ${Buffer.from(payload).toString('base64')}`;
  return `${id} ${type} to ${topic}, parked since ${parkedAt.toISOString()}: ${reason}${bytes}`;
}

function toJson({ id, aggregateId, type, topic, reason, parkedAt, createdAt, payload }: Shown): object {
  return {
    id,
    aggregateId,
    type,
    topic,
    reason,
    createdAt,
    parkedAt,
    ...(payload !== undefined && { payloadBase64: Buffer.from(payload).toString('base64') }),
  };
}
