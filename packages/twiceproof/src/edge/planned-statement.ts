import { durableCommit } from '../connection.ts';
import { answeredClaimColumns, claimAnswered } from '../idempotency/statements.ts';
import { insertMessages, messageColumns } from '../outbox/append.ts';

/**
 * The parts run in this order because each needs rows of the one before: the bounds on waiting, the claims in the order of
 * their hashes, the effects of those that were won, the messages when all effects are done. That the effects are as
 * many as the claims is tested at the end, by a cast that fails and takes everything back with it.
 */
export function plannedStatement(
  schema: string,
  rowColumns: Readonly<Record<string, string>>,
  effects: string,
): string {
  const rows = Object.entries(rowColumns).map(([name, type]) => ({ name, type }));
  const input = [...answeredClaimColumns, ...rows];
  const names = (columns: readonly { name: string }[]) => columns.map(({ name }) => `"${name}"`).join(', ');
  const parameters = (columns: readonly { type: string }[], from: number) =>
    columns.map(({ type }, n) => `$${from + n}::${type}[]`).join(', ');
  const firstOfMessages = 2 + input.length;
  return `WITH bounds AS MATERIALIZED (
      SELECT set_config('lock_timeout', $1, true), ${durableCommit}
    ), input AS MATERIALIZED (
      SELECT i.* FROM bounds, unnest(${parameters(input, 2)}) WITH ORDINALITY AS i (${names(input)}, twiceproof_n)
    ), claimed AS (
      ${claimAnswered(schema, 'input')}
    ), joined AS MATERIALIZED (
      SELECT input.*, claimed.key_hash IS NOT NULL AS is_won FROM input FULL JOIN claimed USING (key_hash)
    ), won AS MATERIALIZED (
      SELECT ${names([...rows, { name: 'twiceproof_n' }])} FROM joined WHERE is_won ORDER BY twiceproof_n
    ), effects AS (
      ${effects}
    ), written AS MATERIALIZED (
      SELECT CASE WHEN rows = plans THEN true
        ELSE format('twiceproof: the statement wrote %s rows for %s plans', rows, plans)::boolean END AS all_of_it
      FROM (SELECT (SELECT count(*) FROM effects) AS rows, (SELECT count(*) FROM claimed) AS plans) AS counted
    ), of_won AS MATERIALIZED (
      SELECT m.*, won.twiceproof_n FROM won FULL JOIN
        unnest($${firstOfMessages}::bigint[], ${parameters(messageColumns, firstOfMessages + 1)})
        WITH ORDINALITY AS m (of, ${names(messageColumns)}, n) ON m.of = won.twiceproof_n
    ), messages AS (
      ${insertMessages(schema, '(SELECT of_won.* FROM written, of_won WHERE of = twiceproof_n AND all_of_it) AS m')}
    )
    SELECT ARRAY(SELECT twiceproof_n::int FROM joined WHERE NOT is_won) AS lost FROM written WHERE all_of_it`;
}
