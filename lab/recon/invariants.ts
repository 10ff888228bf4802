/**
 * What must be true, each as a SELECT of the ids for which it is not. `id` says what kind of row it is, and which.
 * An intent has at most one effect; one that was answered ok has one, at every hop; and there is nothing else.
 */
import pg from 'pg';
import type { Sets } from './sets.ts';

export const deltas = [
  'lost',
  'doubled',
  'phantom',
  'outOfOrder',
  'answeredDifferently',
  'refusedButDone',
  'altered',
  'wrongContent',
  'unclaimed',
  'late',
  'parked',
  'quarantined',
] as const;
export type Delta = (typeof deltas)[number];

export interface Circumstances {
  sets: Sets;
  /** What happened later is not judged by what has not followed from it yet: by the clock of the orders database. */
  cutoffMs: number;
  /** The same by the clock of the ledger's writer. */
  toldCutoffMs: number;
  /** The intents are of the load generator's ledgers, which sends one body under each key. */
  byLedger: boolean;
  /** Who must have every message, besides those who have any. */
  consumers: readonly string[];
  /** Records of the topic were deleted before they were read. */
  beginningIsGone: boolean;
  /** By the clock of the ledger's writer. */
  nowMs: number;
}

/** For each delta, SELECTs of one column of text; none where what it compares is left out. */
export function invariants(circumstances: Circumstances): Record<Delta, readonly string[]> {
  const { sets } = circumstances;
  return {
    lost: lost(circumstances),
    doubled: doubled(sets),
    phantom: phantom(sets),
    outOfOrder,
    answeredDifferently: answeredDifferently(circumstances),
    refusedButDone,
    altered,
    wrongContent: wrongContent(circumstances),
    unclaimed: sets.claims ? [unclaimed(circumstances)] : [],
    late: sets.held ? [heldAs("= 'late'")] : [],
    parked: [
      ...(sets.held ? [heldAs("= 'parked'")] : []),
      ...(sets.parked ? [`SELECT concat('outbox:', msg_id) FROM recon_parked`] : []),
    ],
    quarantined: sets.held ? [heldAs("NOT IN ('late', 'parked')")] : [],
  };
}

/**
 * Where a thing was lost is the first hop that does not have it. `order`: it was answered ok, and the order is not there,
 * or not at that version. `outbox`: the order has had that version, and there is no event of it. Then the event did not
 * get to the topic, the inbox, the effects, the charges. What somebody keeps aside is not lost: it is told as parked,
 * late or quarantined.
 */
function lost({ sets, cutoffMs, toldCutoffMs, beginningIsGone, consumers }: Circumstances): string[] {
  const told = `oks > 0 AND coalesce(told_ms, 0) <= ${toldCutoffMs}`;
  const everybody = [
    'SELECT DISTINCT consumer FROM recon_effects',
    ...consumers.map((name) => `SELECT ${pg.escapeLiteral(name)}`),
  ];
  // Of which nothing was read yet. As soon as there is a row of the consumer, all of it must be there: it is one snapshot.
  const young = `i.msg_id IS NULL AND e.msg_id IS NULL AND greatest(b.at_ms, f.at_ms) > ${cutoffMs}`;
  const hops = [
    `WHEN ${young} OR (p.msg_id IS NOT NULL AND f.msg_id IS NULL) THEN NULL`,
    // Of what was deleted nobody knows whether it was published. Where the consumer has had it, it was.
    `WHEN f.msg_id IS NULL${beginningIsGone ? ' AND i.msg_id IS NULL AND e.msg_id IS NULL' : ''} THEN 'topic'`,
    ...(sets.held ? [`WHEN h.msg_id IS NOT NULL THEN NULL`] : []),
    ...(sets.inbox
      ? [`WHEN i.msg_id IS NULL AND b.msg_id >= coalesce((SELECT floor FROM recon_floor), '') THEN 'inbox'`]
      : []),
    `WHEN e.msg_id IS NULL THEN 'effect'`,
    ...(sets.charges ? [`WHEN b.version = 1 AND c.order_id IS NULL THEN 'charge'`] : []),
  ];
  return [
    `SELECT concat('order:', key) FROM recon_keys k LEFT JOIN recon_own o ON o.order_id = coalesce(k.told_order, k.order_id)
     WHERE ${told} AND coalesce(k.told_order, k.order_id) IS NOT NULL
       AND (o.order_id IS NULL OR coalesce(o.version, 1) < coalesce(k.told_version, 1))`,
    `SELECT concat('order:', key) FROM recon_keys k LEFT JOIN recon_own o ON o.account_id = k.account_id
     WHERE ${told} AND coalesce(k.told_order, k.order_id) IS NULL AND o.order_id IS NULL`,
    `SELECT concat('outbox:', o.order_id, '/', v) FROM recon_own o, generate_series(1, coalesce(o.version, 1)) AS v
     WHERE NOT EXISTS (SELECT FROM recon_outbox b WHERE b.order_id = o.order_id AND b.version = v)`,
    `SELECT concat(hop, ':', order_id, '/', version) FROM (
       SELECT b.order_id, coalesce(b.version, 0) AS version,
         CASE ${hops.join(' ')} END AS hop
       FROM recon_outbox b
         LEFT JOIN recon_first f USING (msg_id)
         LEFT JOIN (SELECT msg_id FROM recon_parked UNION SELECT msg_id FROM recon_parked_before) p USING (msg_id)
         LEFT JOIN recon_held h USING (msg_id)
         LEFT JOIN recon_inbox i USING (msg_id)
         LEFT JOIN recon_effects e
           ON e.msg_id = b.msg_id AND e.order_id = b.order_id AND e.version = b.version
         LEFT JOIN recon_charges c ON c.order_id = b.order_id) AS trail
     WHERE hop IS NOT NULL`,
    // Where several consumers have effects, each must have had every message. They do not commit together.
    `SELECT concat('effect:', consumer, '/', order_id, '/', version) FROM (
       SELECT c.consumer, b.msg_id, b.order_id, b.version FROM recon_outbox b JOIN recon_first f USING (msg_id)
         CROSS JOIN (${everybody.join(' UNION ')}) AS c
       WHERE (SELECT count(*) FROM (${everybody.join(' UNION ')}) AS all_of_them) > 1 AND greatest(b.at_ms, f.at_ms) <= ${cutoffMs}
         AND EXISTS (SELECT FROM recon_effects e WHERE e.msg_id = b.msg_id)) AS expected
     WHERE NOT EXISTS (SELECT FROM recon_effects e WHERE e.msg_id = expected.msg_id AND e.consumer = expected.consumer)`,
    ...(sets.states ? [statesThat('s.order_id IS NULL OR s.version < e.lowest', 'e.lowest')] : []),
    // Which change an intent has led to is known only where its answer has said so. Otherwise they are counted.
    `SELECT concat('status:', order_id, '/', status) FROM (
       SELECT order_id, status, count(*) AS answered FROM recon_keys
       WHERE operation <> 'create' AND ${told} GROUP BY 1, 2 HAVING bool_or(coalesce(told_version, 0) < 2)) AS asked
     WHERE answered > (SELECT count(DISTINCT version) FROM recon_outbox b
       WHERE b.order_id = asked.order_id AND b.status = asked.status AND b.version > 1)`,
  ];
}

/** Orders are counted by the account, which only the intent knows, and not by the key table of the accused. */
function doubled({ charges }: Sets): string[] {
  return [
    `SELECT concat('order:', coalesce(k.key, concat('account ', account_id)))
     FROM (SELECT account_id FROM recon_own GROUP BY account_id HAVING count(*) > 1) AS twice
       LEFT JOIN (SELECT account_id, key FROM recon_keys WHERE operation = 'create') AS k USING (account_id)`,
    `SELECT concat('outbox:', order_id, '/', version) FROM recon_outbox GROUP BY order_id, version HAVING count(*) > 1`,
    `SELECT concat('outbox:', msg_id) FROM recon_outbox GROUP BY msg_id HAVING count(*) > 1`,
    `SELECT concat('effect:', consumer, '/', msg_id) FROM recon_effects GROUP BY consumer, msg_id HAVING count(*) > 1`,
    `SELECT concat('effect:', consumer, '/', order_id, '/', version) FROM recon_effects
     GROUP BY consumer, order_id, version HAVING min(msg_id) <> max(msg_id)`,
    `SELECT concat('status:', order_id, '/', status) FROM (${changesBeyondIntents}) AS change WHERE refused = 0 AND asked > 0`,
    ...(charges ? [`SELECT concat('charge:', order_id) FROM recon_charges GROUP BY order_id HAVING count(*) > 1`] : []),
  ];
}

/**
 * Of an intent of which every request was refused, or never sent, there must be nothing; nor if one of them was refused for
 * what it asks for, whatever became of the others.
 */
const refused = `oks = 0 AND (unknowns = 0 OR is_refused)`;

/**
 * Which change came from which key is known only where it was answered. So changes of an order to a status are counted
 * against the intents that asked for it and may have had an effect.
 */
const changesBeyondIntents = `
  SELECT e.order_id, e.status, coalesce(a.asked, 0) AS asked, coalesce(a.refused, 0) AS refused
  FROM (SELECT order_id, status, count(DISTINCT version) AS changes FROM recon_outbox WHERE version > 1 GROUP BY 1, 2) e
    LEFT JOIN (SELECT order_id, status, count(*) FILTER (WHERE NOT (${refused})) AS asked,
      count(*) FILTER (WHERE ${refused}) AS refused
      FROM recon_keys WHERE operation <> 'create' GROUP BY 1, 2) a USING (order_id, status)
  WHERE e.changes > coalesce(a.asked, 0)`;

function phantom({ charges, states }: Sets): string[] {
  return [
    `SELECT concat('order:', order_id) FROM recon_own o WHERE NOT EXISTS (
       SELECT FROM recon_keys k WHERE k.operation = 'create' AND k.account_id = o.account_id)`,
    `SELECT concat('outbox:', b.msg_id) FROM recon_outbox b LEFT JOIN recon_own o USING (order_id)
     WHERE o.order_id IS NULL OR b.version IS NULL OR b.version NOT BETWEEN 1 AND coalesce(o.version, 1)`,
    `SELECT concat('status:', order_id, '/', status) FROM (${changesBeyondIntents}) AS change
     WHERE refused = 0 AND asked = 0`,
    `SELECT concat('message:', topic, '/', partition, '/', position) FROM recon_messages m WHERE NOT EXISTS (
       SELECT FROM recon_outbox b WHERE b.msg_id = m.msg_id)`,
    `SELECT concat('effect:', id) FROM recon_effects e WHERE NOT EXISTS (SELECT FROM recon_outbox b
       WHERE b.msg_id = e.msg_id AND b.order_id = e.order_id AND b.version = e.version)`,
    ...(states ? [statesThat('e.order_id IS NULL OR s.version > e.highest', 's.version')] : []),
    ...(charges
      ? [
          `SELECT concat('charge:', charge_id) FROM recon_charges c WHERE NOT EXISTS (
             SELECT FROM recon_own o WHERE o.order_id = c.order_id)`,
        ]
      : []),
  ];
}

/**
 * What the consumer takes for the state of an order is that of the newest event that it has had: an older one that came
 * later must not have replaced it, in whichever order the two were committed. They are of one snapshot. Where several
 * consumers have effects nobody knows whose state it is; then it is of one of them.
 */
function statesThat(isWrong: string, version: string): string {
  return `SELECT concat('state:', coalesce(e.order_id, s.order_id), '/', ${version}) FROM (
      SELECT order_id, min(newest) AS lowest, max(newest) AS highest FROM (
        SELECT order_id, max(version) AS newest FROM recon_effects GROUP BY consumer, order_id) AS had GROUP BY order_id) AS e
      FULL JOIN recon_states s USING (order_id)
    WHERE ${isWrong}`;
}

const changed = `(SELECT order_id FROM recon_outbox WHERE version > 1)`;

/** First appearances: whatever is repeated later changes nothing. */
const outOfOrder: readonly string[] = [
  `SELECT concat('message:', order_id, '/', version) FROM (
     SELECT b.order_id, b.version, b.version < lag(b.version) OVER (
       PARTITION BY b.order_id, f.topic, f.partition ORDER BY f.position) AS is_back
     FROM recon_outbox b JOIN recon_first f USING (msg_id) WHERE b.order_id IN ${changed}) AS read WHERE is_back`,
  `SELECT concat('key:', key) FROM recon_messages GROUP BY topic, key HAVING min(partition) <> max(partition)`,
  `SELECT concat('effect:', consumer, '/', order_id, '/', version) FROM (
     SELECT consumer, order_id, version, version < lag(version) OVER (
       PARTITION BY consumer, order_id ORDER BY id) AS is_back
     FROM (SELECT consumer, order_id, version, min(id) AS id FROM recon_effects WHERE order_id IN ${changed}
       GROUP BY consumer, order_id, version) AS first) AS done WHERE is_back`,
];

/**
 * A refusal beside an ok may only say that this request was not looked at: no right or too much at the moment (401, 403,
 * 408, 425, 429), or a conflict with one under way (409), which some say. One that says something of the request itself
 * (no such order, not valid) contradicts the ok. Over gRPC those are INVALID_ARGUMENT, NOT_FOUND and OUT_OF_RANGE.
 */
export const contradicts = `verdict = 'fail' AND (code IN ('3', '5', '11')
  OR code ~ '^4[0-9][0-9]$' AND code NOT IN ('401', '403', '408', '409', '425', '429'))`;

/** That its key belongs to another request (409, ALREADY_EXISTS, FAILED_PRECONDITION) is never true of a ledger's. */
const isTakenForAnother = `verdict = 'fail' AND code IN ('409', '6', '9')`;

/** Both doors of ours name the order, its state, and the version that a change has led to, which is not its first. */
const namesNothing = `coalesce(verdict, 'ok') = 'ok'
  AND (told_order IS NULL OR told_status IS NULL OR (operation <> 'create' AND coalesce(told_version, 0) < 2))`;

const answeredDifferently = ({ byLedger }: Circumstances): string[] => [
  ...(byLedger ? [`SELECT concat('key:', key) FROM recon_intents WHERE ${isTakenForAnother} OR ${namesNothing}`] : []),
  `SELECT concat('key:', key) FROM recon_intents WHERE coalesce(verdict, 'ok') = 'ok'
   GROUP BY tenant, operation, key, door HAVING min(hash) <> max(hash)`,
  `SELECT concat('key:', key) FROM recon_keys WHERE two_answers`,
  `SELECT concat('event:', told_order, '/', told_version) FROM recon_keys WHERE oks > 0
   GROUP BY told_order, told_version HAVING count(*) > 1 AND told_order IS NOT NULL AND told_version IS NOT NULL`,
  `SELECT concat('key:', key) FROM recon_keys WHERE oks > 0 AND told_order <> order_id`,
  `SELECT concat('key:', k.key) FROM recon_keys k JOIN recon_own o ON o.order_id = k.told_order
   WHERE k.operation = 'create' AND o.account_id <> k.account_id`,
  `SELECT concat('key:', r.key) FROM recon_intents r JOIN recon_keys k USING (operation, key)
   WHERE k.tenant IS NOT DISTINCT FROM r.tenant AND k.oks > 0 AND ${contradicts}`,
];

const refusedButDone: readonly string[] = [
  `SELECT concat('order:', k.key) FROM recon_keys k WHERE k.operation = 'create' AND ${refused}
     AND EXISTS (SELECT FROM recon_own o WHERE o.account_id = k.account_id)`,
  `SELECT concat('status:', order_id, '/', status) FROM (${changesBeyondIntents}) AS change WHERE refused > 0`,
];

/** What is published again is the same, byte for byte; and it is what was committed. */
const altered: readonly string[] = [
  `SELECT concat('message:', f.msg_id) FROM recon_first f LEFT JOIN recon_outbox b USING (msg_id)
   WHERE f.record <> f.other_record OR f.digest <> b.digest OR (b.type IS NOT NULL AND f.type IS DISTINCT FROM b.type)
     OR (b.msg_id IS NOT NULL AND f.key IS DISTINCT FROM b.order_id)`,
];

/** If events say their state, or the first of an order its amount, each of them does. */
const unreadable = [
  ['status', 'version >= 1'],
  ['amount_cents', 'version = 1'],
].map(
  ([field, where]) => `SELECT concat('event:', order_id, '/', version) FROM recon_outbox
     WHERE ${where} AND ${field} IS NULL AND EXISTS (SELECT FROM recon_outbox WHERE ${field} IS NOT NULL)`,
);

function wrongContent({ sets: { charges, states }, byLedger }: Circumstances): string[] {
  return [
    `SELECT concat('order:', o.order_id) FROM recon_own o JOIN recon_keys k USING (account_id)
     WHERE k.operation = 'create' AND (o.amount_cents <> k.amount_cents OR o.tenant <> k.tenant)`,
    `SELECT concat('order:', o.order_id) FROM recon_own o JOIN recon_outbox b USING (order_id, version)
     WHERE o.status <> b.status`,
    `SELECT concat('event:', b.order_id, '/1') FROM recon_outbox b JOIN recon_own o USING (order_id)
     WHERE b.version = 1 AND b.amount_cents <> o.amount_cents`,
    `SELECT concat('event:', b.order_id, '/', b.version) FROM recon_outbox b JOIN recon_keys k
       ON k.told_order = b.order_id AND k.told_version = b.version
     WHERE b.status <> k.told_status OR (k.operation <> 'create' AND b.status <> k.status)`,
    ...(byLedger ? unreadable : []),
    ...(states
      ? [
          `SELECT concat('state:', s.order_id, '/', s.version) FROM recon_states s JOIN recon_outbox b USING (order_id, version)
           WHERE s.status <> b.status`,
        ]
      : []),
    ...(charges
      ? [
          `SELECT concat('charge:', charge_id) FROM recon_charges c JOIN recon_own o USING (order_id)
             LEFT JOIN recon_keys k ON k.operation = 'create' AND k.account_id = o.account_id
           WHERE c.amount_cents <> coalesce(k.amount_cents, o.amount_cents)`,
        ]
      : []),
  ];
}

/** Keys are kept for 72 hours by default; whether an older one should still be there, nobody here knows. */
const claimsKeptMs = 24 * 3_600_000;

/** Done, answered, and not remembered: the next repetition would do it again. */
function unclaimed({ toldCutoffMs, nowMs }: Circumstances): string {
  return `SELECT concat('key:', key) FROM recon_keys k
    WHERE oks > 0 AND told_ms BETWEEN ${nowMs - claimsKeptMs} AND ${toldCutoffMs} AND NOT EXISTS (
      SELECT FROM recon_claims c WHERE c.tenant = k.tenant AND c.operation = k.operation AND c.key = k.key)`;
}

/** Neither lost nor doubled, and still not done: somebody has to look. */
function heldAs(kinds: string): string {
  return `SELECT concat(kind, ':', coalesce(msg_id, concat('row ', seq))) FROM recon_held WHERE kind ${kinds}`;
}
