/** A trigger notifies, and what is heard is published. What is notified while nobody listens was never said. */
import { rowColumns, runRelay, type Row } from '../relay.ts';

const heard: string[] = [];
let isListening = false;

await runRelay({
  name: 'notified-only',
  tables: `
    CREATE OR REPLACE FUNCTION tell_outbox() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN PERFORM pg_notify('outbox', NEW.id::text); RETURN NULL; END $$;
    CREATE OR REPLACE TRIGGER tell_outbox AFTER INSERT ON twiceproof.outbox
      FOR EACH ROW EXECUTE FUNCTION tell_outbox();`,
  pass: async ({ pool, listen, send, point }) => {
    if (!isListening) await listen((id) => heard.push(id));
    isListening = true;
    const ids = heard.splice(0, 200);
    if (ids.length === 0) return 0;
    const { rows } = await pool.query<Row>(
      `SELECT ${rowColumns} FROM twiceproof.outbox o WHERE id = ANY ($1::bigint[]) ORDER BY o.id`,
      [ids],
    );
    await point('recipe:heard');
    await send(rows);
    return rows.length;
  },
});
