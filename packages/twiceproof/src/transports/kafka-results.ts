import { protocolErrorsCodesById } from '@platformatic/kafka';
import { TwiceproofError, type ErrorCode } from '../errors.ts';
import type { Lane } from '../transport.ts';
import { hasApiId, saysUnknownTopic, walkErrors } from './kafka-errors.ts';

/** What became of one partition's chunk in one round. */
export type LaneResult =
  | { result: 'acknowledged'; offset: bigint }
  | { result: 'rejected'; error: TwiceproofError }
  | { result: 'refused' | 'unknown'; error: TwiceproofError };

interface ProduceResponse {
  responses: { name: string; partitionResponses: { index: number; errorCode: number; baseOffset: bigint }[] }[];
}

interface SendError {
  produced?: { offsets?: { topic: string; partition: number; offset: bigint }[] };
}

const messageTooLarge = 10;
const recordListTooLarge = 18;
const topicAuthorizationFailed = 29;
const clusterAuthorizationFailed = 31;
const invalidRecord = 87;

/**
 * One `send()` goes to several brokers and is tried several times, and fails as a whole when any of
 * it fails. So the result of each partition is read from all the answers in the error: an
 * acknowledgement counts whenever it came, otherwise the last error code does, and a partition
 * that was never answered for is unknown.
 */
export function readResults(
  lanes: readonly Lane[],
  error: unknown,
  offsets: readonly { topic: string; partition: number; offset: bigint }[],
): LaneResult[] {
  const acknowledged = new Map<string, bigint>();
  const codes = new Map<string, number>();
  for (const { topic, partition, offset } of [...offsets, ...((error as SendError)?.produced?.offsets ?? [])]) {
    acknowledged.set(`${topic} ${partition}`, offset);
  }
  for (const { response } of walkErrors(error)) {
    for (const { name, partitionResponses } of (response as ProduceResponse | undefined)?.responses ?? []) {
      for (const { index, errorCode, baseOffset } of partitionResponses) {
        if (errorCode === 0) acknowledged.set(`${name} ${index}`, baseOffset);
        else codes.set(`${name} ${index}`, errorCode);
      }
    }
  }
  return lanes.map(({ topic, partition }) => {
    const lane = `${topic} ${partition}`;
    const offset = acknowledged.get(lane);
    return offset !== undefined ? { result: 'acknowledged', offset } : readCode(topic, codes.get(lane), error);
  });
}

function readCode(topic: string, code: number | undefined, cause: unknown): LaneResult {
  const said = code === undefined ? '' : `: ${protocolErrorsCodesById[code] ?? 'an unknown error'} (${code})`;
  const byBroker = (errorCode: ErrorCode): TwiceproofError =>
    new TwiceproofError(errorCode, `the broker would not take it for ${topic}${said}`, { cause });
  switch (code) {
    case messageTooLarge:
    case recordListTooLarge:
      return { result: 'rejected', error: byBroker('TP_RECORD_TOO_LARGE') };
    case invalidRecord:
      return { result: 'rejected', error: byBroker('TP_RECORD_INVALID') };
    case topicAuthorizationFailed:
    case clusterAuthorizationFailed:
      return { result: 'refused', error: byBroker('TP_NOT_AUTHORIZED') };
    default:
      if (saysUnknownTopic(cause, topic)) return { result: 'refused', error: byBroker('TP_TOPIC_UNKNOWN') };
      // An idempotent producer asks for an id first, and may hear there already that it may not write.
      if (hasApiId(cause, 'CLUSTER_AUTHORIZATION_FAILED')) {
        return { result: 'refused', error: byBroker('TP_NOT_AUTHORIZED') };
      }
      if (cause instanceof TwiceproofError) return { result: 'unknown', error: cause };
      return { result: 'unknown', error: byBroker('TP_BROKER_UNREACHABLE') };
  }
}
