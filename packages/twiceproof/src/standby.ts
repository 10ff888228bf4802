import type { PoolClient } from './connection.ts';
import { TwiceproofError } from './errors.ts';

/**
 * Around a statement that commits. Where a standby must have it too, the server may give up waiting for that, and then says
 * that it is done all the same, with a warning. The warning is known by the place in the server that it comes from, since
 * its text is translated.
 */
export async function withStandby<T>(client: PoolClient, commit: () => Promise<T>): Promise<T> {
  let isAwaited = true;
  const hear = (notice: { routine?: string }): void => {
    if (notice.routine === 'SyncRepWaitForLSN') isAwaited = false;
  };
  type Listening = (event: 'notice', listener: typeof hear) => void;
  const { on, off } = client as unknown as { on?: Listening; off?: Listening };
  on?.call(client, 'notice', hear);
  try {
    const result = await commit();
    if (isAwaited) return result;
  } finally {
    off?.call(client, 'notice', hear);
  }
  const detail = 'it is committed here, and perhaps not on the standby that must have it';
  throw new TwiceproofError('TP_COMMIT_UNKNOWN', detail);
}
