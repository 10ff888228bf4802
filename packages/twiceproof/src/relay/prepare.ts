import { TwiceproofError } from '../errors.ts';
import { isTopicName, type MessageId } from '../message.ts';
import type { SourcedMessage } from '../source.ts';
import type { OutgoingRecord, PublishOutcome } from '../transport.ts';
import { toRecord } from '../wire.ts';

export interface Prepared {
  /** To be sent, and their records at the same index. */
  messages: SourcedMessage[];
  records: OutgoingRecord[];
  /** Of the others: why not. */
  outcomes: Map<MessageId, PublishOutcome>;
}

/** Behind a message that cannot be sent nothing of its aggregate is: it would overtake. */
export function prepare(
  messages: readonly SourcedMessage[],
  name: string,
  topics: ReadonlySet<string> | undefined,
): Prepared {
  const prepared: Prepared = { messages: [], records: [], outcomes: new Map() };
  const blocked = new Set<string>();
  for (const message of messages) {
    const record = blocked.has(message.aggregateId) ? withheld : recordOf(message, name, topics);
    if ('outcome' in record) {
      blocked.add(message.aggregateId);
      prepared.outcomes.set(message.id, record);
    } else {
      prepared.messages.push(message);
      prepared.records.push(record);
    }
  }
  return prepared;
}

/** With what a transport has said of those that were sent. What it leaves out nobody may take for done. */
export function withPublished(
  { messages, outcomes }: Prepared,
  published: readonly (PublishOutcome | undefined)[],
): Map<MessageId, PublishOutcome> {
  messages.forEach(({ id }, n) => outcomes.set(id, published[n] ?? notTold));
  return outcomes;
}

const notTold: PublishOutcome = {
  outcome: 'unknown',
  error: new TwiceproofError('TP_BROKER_UNREACHABLE', 'the transport has not said what became of it'),
};
const withheld = { outcome: 'withheld' } as const;

function recordOf(
  message: SourcedMessage,
  name: string,
  topics: ReadonlySet<string> | undefined,
): OutgoingRecord | PublishOutcome {
  const { topic } = message;
  if (!isTopicName(topic)) {
    return { outcome: 'rejected', error: new TwiceproofError('TP_RECORD_INVALID', `'${topic}' is no name of a topic`) };
  }
  if (topics && !topics.has(topic)) {
    const detail = `'${topic}' is not among the topics that this relay publishes to`;
    return { outcome: 'refused', error: new TwiceproofError('TP_TOPIC_NOT_CONFIGURED', detail) };
  }
  try {
    return toRecord(message, name);
  } catch (cause) {
    const detail = cause instanceof Error ? cause.message : String(cause);
    return { outcome: 'rejected', error: new TwiceproofError('TP_RECORD_INVALID', detail, { cause }) };
  }
}
