/**
 * COPY in both directions, as streams of bytes. node-postgres speaks the messages of the protocol and leaves what to do
 * with them to an object that is given to `query`: that is all of what a package for it would bring.
 */
import { once } from 'node:events';
import { Readable } from 'node:stream';
import type pg from 'pg';

/** As node-postgres has them; its types leave out what they call internal. */
interface CopyConnection extends pg.Connection {
  sendCopyFromChunk(chunk: Buffer): void;
  endCopyFrom(): void;
  sendCopyFail(message: string): void;
}

const chunkBytes = 64 * 1024;

/** What COPY ... TO STDOUT sends. The server waits while nobody reads. */
export function copyOut(client: pg.Client, text: string): Readable {
  let socket: pg.Connection['stream'] | undefined;
  let chunk = Buffer.allocUnsafe(chunkBytes);
  let used = 0;
  const out = new Readable({
    read: () => {
      socket?.resume();
    },
  });
  const give = (bytes: Buffer): void => {
    if (!out.push(bytes)) socket?.pause();
  };
  const flush = (): void => {
    if (used > 0) give(chunk.subarray(0, used));
    chunk = Buffer.allocUnsafe(chunkBytes);
    used = 0;
  };
  const done = (error?: Error): void => {
    socket?.resume(); // Or nothing would ever come on this connection again.
    if (error) out.destroy(error);
    else out.push(null);
  };
  client.query(
    statement(text, done, {
      submitted: (connection) => {
        socket = connection.stream;
      },
      // A row comes as a view of a buffer that will be used again, and rows are small: they are gathered.
      handleCopyData: ({ chunk: row }) => {
        if (used + row.length > chunkBytes) flush();
        if (row.length > chunkBytes) give(Buffer.from(row));
        else used += row.copy(chunk, used);
      },
      handleCommandComplete: flush,
    }),
  );
  return out;
}

/** Feeds COPY ... FROM STDIN and answers the number of rows; bytes may be cut anywhere. What the source throws ends it. */
export async function copyIn(client: pg.Client, text: string, source: AsyncIterable<Buffer>): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  let rows = 0;
  let over = false;
  let sourceError: Error | undefined;
  const done = (error?: Error): void => {
    over = true;
    if (error) reject(sourceError ?? error);
    else resolve(rows);
  };
  const feed = async (connection: CopyConnection): Promise<void> => {
    const { stream: socket } = connection;
    try {
      for await (const chunk of source) {
        if (over) return; // The server has refused a line; it drops what is still on its way.
        connection.sendCopyFromChunk(chunk);
        if (socket.writableNeedDrain) await Promise.race([once(socket, 'drain'), promise]);
      }
      connection.endCopyFrom();
    } catch (cause) {
      if (over) return;
      sourceError = cause instanceof Error ? cause : new Error(String(cause), { cause });
      connection.sendCopyFail('the source failed');
    }
  };
  client.query(
    statement(text, done, {
      handleCopyInResponse: (connection) => {
        feed(connection).catch(done);
      },
      handleCommandComplete: ({ text: tag }) => {
        rows = Number(tag.replace('COPY ', ''));
      },
    }),
  );
  return promise;
}

interface Handlers {
  submitted?(connection: CopyConnection): void;
  handleCopyInResponse?(connection: CopyConnection): void;
  handleCopyData?(message: { chunk: Buffer }): void;
  handleCommandComplete?(message: { text: string }): void;
}

/** As much of a query as node-postgres asks for. */
function statement(text: string, done: (error?: Error) => void, handlers: Handlers): pg.Submittable {
  const { submitted, ...rest } = handlers;
  return {
    submit: (connection: pg.Connection) => {
      submitted?.(connection as CopyConnection);
      connection.query(text);
    },
    handleCopyData() {},
    handleCommandComplete() {},
    handleRowDescription() {},
    handleDataRow() {},
    handleEmptyQuery() {},
    handleReadyForQuery: () => done(),
    handleError: (error: Error) => done(error),
    ...rest,
  } as pg.Submittable;
}
