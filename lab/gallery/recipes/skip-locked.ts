/** Several relays take rows by FOR UPDATE SKIP LOCKED: each the next few, so a key's messages go out side by side. */
import { rowColumns, runRelay, type RelayHands, type Row } from '../relay.ts';

/** In each process. */
const relays = 4;

await runRelay({
  name: 'skip-locked',
  tables: 'CREATE TABLE IF NOT EXISTS published (id bigint PRIMARY KEY);',
  pass: async (hands) => {
    const counts = await Promise.all(Array.from({ length: relays }, async () => publishNext(hands)));
    return counts.reduce((sum, count) => sum + count, 0);
  },
});

async function publishNext({ inTransaction, send, point }: RelayHands): Promise<number> {
  return inTransaction(async (client) => {
    const { rows } = await client.query<Row>(
      `SELECT ${rowColumns} FROM twiceproof.outbox o WHERE NOT EXISTS (SELECT FROM published p WHERE p.id = o.id)
       ORDER BY o.id LIMIT 20 FOR UPDATE OF o SKIP LOCKED`,
    );
    if (rows.length === 0) return 0;
    await point('recipe:locked');
    await send(rows);
    await client.query('INSERT INTO published SELECT unnest($1::bigint[]) ON CONFLICT DO NOTHING', [
      rows.map(({ id }) => id),
    ]);
    return rows.length;
  });
}
