import type { PoolClient, QueryResult } from '../connection.ts';
import { TwiceproofError } from '../errors.ts';
import { point } from '../points.ts';
import type { Progress, SourceBatch } from '../source.ts';
import type { Cursor, Page, Row } from './poll-pages.ts';
import { advanceAndCommit, park, type CursorPlace } from './poll-statements.ts';

export interface Held {
  /** Inside the transaction that holds the shard. */
  client: PoolClient;
  schema: string;
  cursor: Cursor;
  page: Page;
  /** How much of it was done. */
  onEnd(done: 'all' | 'part' | 'nothing'): void;
}

/** A page whose shard is locked. It ends with the transaction, and gives the connection back. */
export function createBatch({ client, schema, cursor, page, onEnd }: Held): SourceBatch {
  const toPublish = page.rows.filter(({ isBehind }) => !isBehind);
  let ended = false;

  function end(): void {
    if (ended) throw new Error('this batch has ended');
    ended = true;
  }

  async function advance({ done, parked }: Progress): Promise<void> {
    const isWhole = done === toPublish.length;
    if (!isWhole && !toPublish[done]) throw new RangeError(`${done} of ${toPublish.length} messages cannot be done`);
    end();
    try {
      // Rows behind parked keys that stand among the done ones are done too.
      const rows = isWhole ? page.rows : page.rows.slice(0, page.rows.indexOf(toPublish[done]!));
      const reasons = new Map<Row, string>(parked.map(({ index, reason }) => [toPublish[index]!, reason]));
      await keepAside(rows, reasons);
      const text = advanceAndCommit(schema, cursor.shard, place(rows, isWhole && page.isLast));
      const [results] = await Promise.all([client.query(text), point('source:advance-sent')]);
      const tags = (results as unknown as QueryResult[]).map(({ command, rowCount }) => `${command} ${rowCount}`);
      if (tags[0] !== 'UPDATE 1' || !tags[1]?.startsWith('COMMIT')) {
        throw new TwiceproofError('TP_COMMIT_WAS_ROLLBACK', `the cursor did not advance: ${tags.join(', ')}`);
      }
      client.release();
      onEnd(isWhole ? 'all' : done > 0 ? 'part' : 'nothing');
    } catch (error) {
      onEnd('nothing');
      // Whether it is committed nobody needs to know: what is read again is published again, with the same id.
      client.release(true);
      throw error;
    }
    await point('source:advanced');
  }

  async function keepAside(done: readonly Row[], reasons: ReadonlyMap<Row, string>): Promise<void> {
    const aside = done.filter((row) => row.isBehind || reasons.has(row));
    if (aside.length === 0) return;
    await client.query(park(schema), [
      cursor.shard,
      aside.map(({ message }) => message.topic),
      aside.map(({ message }) => message.aggregateId),
      aside.map(({ message }) => message.id),
      aside.map(({ message }) => message.type),
      aside.map(({ message }) => message.payload),
      aside.map(({ headers }) => headers),
      aside.map(({ createdUs }) => createdUs),
      aside.map((row) => reasons.get(row) ?? 'behind a message that is parked'),
    ]);
    await point('source:parked');
  }

  function place(done: readonly Row[], isEnd: boolean): CursorPlace {
    const { prev, cur, lastId, windowDone } = cursor;
    if (isEnd) return { prev: cur, cur: null, lastId: 0n, windowDone: 0 };
    return { prev, cur, lastId: done.at(-1)?.position ?? lastId, windowDone: windowDone + done.length };
  }

  return {
    messages: toPublish.map(({ message }) => message),
    advance,
    abandon: async () => {
      end();
      onEnd('nothing');
      try {
        await client.query('ROLLBACK');
        client.release();
      } catch {
        client.release(true);
      }
    },
  };
}
