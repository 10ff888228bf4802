/** Stands between a program and its Postgres, and reads what the program sends. */
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export interface StatementWatch {
  /** The same database, by way of here. */
  url: string;
  /** Every different text of a statement. */
  texts: Set<string>;
  /** How many statements came with values. */
  bound: () => number;
  /** Values of statements that hold the word that must not come: there should be none. */
  forbidden: string[];
  close(): Promise<void>;
}

export async function watchStatements(databaseUrl: string, forbiddenWord: string): Promise<StatementWatch> {
  const target = new URL(databaseUrl);
  const texts = new Set<string>();
  const forbidden: string[] = [];
  let bound = 0;
  const read = (type: string, content: Buffer): void => {
    if (type === 'Q') texts.add(content.toString('utf8', 0, content.length - 1));
    if (type === 'P') {
      const textAt = content.indexOf(0) + 1;
      texts.add(content.toString('utf8', textAt, content.indexOf(0, textAt)));
    }
    if (type !== 'B') return;
    bound += 1;
    if (content.includes(forbiddenWord)) forbidden.push(content.toString('latin1').slice(0, 1_000));
  };
  const sockets = new Set<Socket>();
  const server = createServer((program) => {
    const postgres = connect(Number(target.port || 5432), target.hostname);
    const feed = messageReader(read);
    program.on('data', feed);
    program.pipe(postgres).pipe(program);
    for (const [one, other] of [
      [program, postgres],
      [postgres, program],
    ] as const) {
      sockets.add(one);
      one.setNoDelay(true);
      one.on('error', () => other.destroy());
      one.on('close', () => {
        sockets.delete(one);
        other.destroy();
      });
    }
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const url = new URL(databaseUrl);
  url.host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url: url.href,
    texts,
    bound: () => bound,
    forbidden,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Postgres' protocol from the client's side: the first message has no type, each of the others a letter. */
function messageReader(read: (type: string, content: Buffer) => void): (piece: Buffer) => void {
  let received: Buffer = Buffer.alloc(0);
  let typeBytes = 0;
  return (piece) => {
    received = received.length === 0 ? piece : Buffer.concat([received, piece]);
    while (received.length >= typeBytes + 4) {
      const end = typeBytes + received.readUInt32BE(typeBytes);
      if (received.length < end) return;
      if (typeBytes === 1) read(String.fromCharCode(received[0]!), received.subarray(5, end));
      received = received.subarray(end);
      typeBytes = 1;
    }
  };
}
