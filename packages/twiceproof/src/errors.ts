/**
 * Every error that this package raises on purpose, in one table. `docs/errors.md` lists the same
 * codes, and a test compares the two. Expected outcomes (a duplicate, a refusal of the business)
 * are values and do not stand here.
 */
export const errorTable = {
  TP_CLOSED: {
    retryable: false,
    todo: 'The publisher or subscription was closed before this call; create a new one.',
  },
  TP_DEADLINE: {
    retryable: true,
    todo: 'The broker did not answer in time. The record may or may not be written: publish it again with the same id.',
  },
  TP_BROKER_UNREACHABLE: {
    retryable: true,
    todo: 'Check KAFKA_BROKERS and that a majority of the brokers runs. Nothing is lost; publish again.',
  },
  TP_RECORD_TOO_LARGE: {
    retryable: false,
    todo: "Make the payload smaller, or raise the topic's max.message.bytes and the transport's maxRecordBytes together.",
  },
  TP_RECORD_INVALID: {
    retryable: false,
    todo: 'The record cannot be encoded as it is (the message names the field). Fix what builds it.',
  },
  TP_TOPIC_UNKNOWN: {
    retryable: true,
    todo: 'Create the topic (topics are never created on the fly), or correct its name in the configuration.',
  },
  TP_NOT_AUTHORIZED: {
    retryable: true,
    todo: 'Grant this principal the right to use the topic or the group; records wait until then.',
  },
  TP_LANE_REVOKED: {
    retryable: true,
    todo: 'Nothing: the lane has moved to another member of the group, where its unsettled records come again.',
  },
  TP_STOOD_STILL: {
    retryable: true,
    todo: 'Split up long computations in handlers, or give the process more of the machine: a member of a group that stands still for its session loses its lanes, and all members stop for a moment.',
  },
  TP_ASSIGNMENT_FAILED: {
    retryable: true,
    todo: 'onAssigned or onRevoked threw (the cause says what). The lanes wait and the callback is tried again.',
  },
  TP_POSITION_LOST: {
    retryable: false,
    todo: 'Records were deleted before they were read, or the topic was re-created or restored: reading goes on from the earliest record; compare what was published with what was processed. Where the message says that the database has another position, none was deleted, and nothing is to be done.',
  },
  TP_FEATURE_MISSING: {
    retryable: false,
    todo: 'This transport does not declare the feature; choose another transport, or do without the option.',
  },
  TP_POINTS_IN_PRODUCTION: {
    retryable: false,
    todo: 'Points let a test stop this process between any two steps. Unset TWICEPROOF_POINTS, or NODE_ENV=production.',
  },
  TP_NOT_IN_TRANSACTION: {
    retryable: false,
    todo: 'Pass the client on which BEGIN was sent, or the handle that `transaction` gives you; not a pool.',
  },
  TP_OTHER_CONNECTION: {
    retryable: false,
    todo: 'Send the statement through the `tx` that the handler was given: by another connection it would stay when the rest is rolled back.',
  },
  TP_COMMIT_WAS_ROLLBACK: {
    retryable: false,
    todo: 'A statement failed and the code went on as if it had not. Let its error pass, or use a savepoint. Nothing was written.',
  },
  TP_TRANSACTION_CONTROL: {
    retryable: false,
    todo: 'The transaction is not yours to begin or end: return to commit it, throw to roll it back, and use savepoints inside.',
  },
  TP_COMMIT_UNKNOWN: {
    retryable: false,
    todo: 'The transaction may or may not be committed. Look for its effect before you do it again, or do it again under the same key.',
  },
  TP_PLAN_NOT_KEPT: {
    retryable: false,
    todo: "The operation's statement must write and return one row for each row of `won`. Where that depends on the data, use `groupOperation`. Nothing was written.",
  },
  TP_KEY_COLLISION: {
    retryable: false,
    todo: 'Use another idempotency key. Two different keys have the same hash, which should not happen in our lifetime: please report it.',
  },
  TP_SCHEMA_NAME: {
    retryable: false,
    todo: 'Use lower-case letters, digits and underscores, a letter or underscore first, 63 characters at most; not pg_... or information_schema.',
  },
  TP_SCHEMA_VERSION: {
    retryable: false,
    todo: 'Run the migrations (`migrate`), with the same schema name as here.',
  },
  TP_STANDBY: {
    retryable: false,
    todo: 'Connect to the primary: a standby does not know which transactions are under way, so messages would be missed.',
  },
  TP_CURSOR_FOREIGN: {
    retryable: false,
    todo: 'The database was restored from a dump, or moved. Stop all writers and relays, then run `twiceproof outbox repair` (docs/operations.md).',
  },
  TP_OUTBOX_CHANGED: {
    retryable: false,
    todo: 'Somebody deleted or changed rows of the outbox that were not published. It is a log: use `twiceproof outbox prune`, and nothing else.',
  },
  TP_INBOX_EXPIRED: {
    retryable: true,
    todo: 'Nothing: run the transaction again (`transaction` does). The inbox forgot its oldest part at this moment, and the message will be told late.',
  },
  TP_HORIZON: {
    retryable: false,
    todo: 'Keep ids in the inbox for longer than a message can come again (`--dedup-ttl`), or let the topic keep messages for less long.',
  },
  TP_HANDLER: {
    retryable: false,
    todo: "The consumer's handler failed for good on this message. Mend the handler or the data, then `twiceproof held redrive` or `release`; or `drop` it on purpose.",
  },
  TP_HANDLER_SLOW: {
    retryable: true,
    todo: "The consumer's handler did not return in time. What it began is rolled back; make it faster, or raise `handlerTimeoutMs`.",
  },
  TP_INBOX_BEHIND: {
    retryable: true,
    todo: 'No keeper has made partitions of the inbox for so long that there is none for new messages: run one (`createInboxKeeper`). They wait until then.',
  },
  TP_NOT_REDRIVEN: {
    retryable: false,
    todo: 'The held message stays where it is; the message says why. `twiceproof held drop` gives it up on purpose.',
  },
  TP_OPTION: {
    retryable: false,
    todo: 'Correct the option that the message names.',
  },
  TP_TOPIC_NOT_CONFIGURED: {
    retryable: false,
    todo: 'Add the topic to the `topics` of the outbox, or of the relay, or correct its name where the message is made.',
  },
  TP_MESSAGE_INVALID: {
    retryable: false,
    todo: 'Correct the part of the message that is named; the transaction can still be rolled back.',
  },
  TP_HEADER_NOT_KEPT: {
    retryable: false,
    todo: 'Take the header off the answer, or set it outside the keyed handler, for the first answer and every replay alike.',
  },
  TP_MESSAGE_TOO_LARGE: {
    retryable: false,
    todo: "Send a reference instead of the content, or raise `limits.messageBytes` and the topic's max.message.bytes together.",
  },
} as const satisfies Record<string, { retryable: boolean; todo: string }>;

export type ErrorCode = keyof typeof errorTable;

export class TwiceproofError extends Error {
  readonly code: ErrorCode;
  /** Whether the same call may succeed later without any change by the caller. */
  readonly retryable: boolean;
  /** What a person should do about it. */
  readonly todo: string;

  constructor(code: ErrorCode, detail: string, options?: { cause?: unknown }) {
    super(`${code}: ${detail}`, options);
    this.name = 'TwiceproofError';
    this.code = code;
    this.retryable = errorTable[code].retryable;
    this.todo = errorTable[code].todo;
  }
}
