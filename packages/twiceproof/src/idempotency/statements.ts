import { TwiceproofError } from '../errors.ts';
import { quotedSchema } from '../schema-name.ts';
import type { Tx } from '../tx.ts';
import { isSameRequest, keyHash, type Answer, type Intent } from './intent.ts';

/** What the store knows of an intent that has been claimed before. */
export type Known = { answer: Answer } | 'mismatch';

export interface KeyStore {
  /**
   * Claims the intents that nobody has claimed, and answers the claims of those, by key hash. Waits for a transaction
   * that has claimed one of them and has not ended yet. An intent that is not in the answer was claimed before:
   * read it in a statement of its own, since in this one the other's row may not be visible.
   *
   * Sorted by the hash, so that two that claim the same keys cannot wait for each other. No key twice.
   */
  claim(tx: Tx, intents: readonly Intent[]): Promise<Map<string, { id: string }>>;
  /** By key hash. One that is missing here has just expired, or was never claimed. */
  read(tx: Tx, intents: readonly Intent[]): Promise<Map<string, Known>>;
  /** The answers to claims of this same transaction. */
  store(tx: Tx, answers: readonly { id: string; answer: Answer }[]): Promise<void>;
}

export function createKeyStore(schemaName?: string): KeyStore {
  const schema = quotedSchema(schemaName);
  const claimText = `INSERT INTO ${schema}.idempotency_keys
      (key_hash, principal, operation, idem_key, request_hash, hash_version)
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::smallint[])
    ORDER BY 1 ON CONFLICT DO NOTHING RETURNING key_hash, id`;
  const readText = `SELECT key_hash, principal, operation, idem_key, request_hash, hash_version,
      coalesce(k.response_code, a.response_code) AS response_code,
      coalesce(k.response_headers, a.response_headers) AS response_headers,
      coalesce(k.response_body, a.response_body) AS response_body,
      coalesce(k.render_version, a.render_version) AS render_version
    FROM unnest($1::uuid[]) AS wanted (hash)
    JOIN ${schema}.idempotency_keys k ON k.key_hash = wanted.hash
    LEFT JOIN ${schema}.answers a ON a.id = k.id`;
  const storeText = `INSERT INTO ${schema}.answers (id, response_code, response_headers, response_body, render_version)
    SELECT * FROM unnest($1::bigint[], $2::int[], $3::json[], $4::bytea[], $5::smallint[])`;
  return {
    async claim(tx, intents) {
      const { rows } = await tx.query(claimText, [
        intents.map(keyHash),
        intents.map(({ principal }) => principal),
        intents.map(({ operation }) => operation),
        intents.map(({ key }) => key),
        intents.map(({ requestHash }) => `\\x${requestHash}`),
        intents.map(({ hashVersion }) => hashVersion),
      ]);
      return new Map(rows.map((row) => [String(row['key_hash']), { id: String(row['id']) }]));
    },
    async read(tx, intents) {
      const byHash = new Map(intents.map((intent) => [keyHash(intent), intent]));
      const { rows } = await tx.query(readText, [[...byHash.keys()]]);
      return new Map(rows.map((row) => [String(row['key_hash']), compare(row, byHash.get(String(row['key_hash']))!)]));
    },
    async store(tx, answers) {
      await tx.query(storeText, [answers.map(({ id }) => id), ...answerColumns(answers.map(({ answer }) => answer))]);
    },
  };
}

/** What a statement that claims and answers at once needs of each intent, in this order. */
export const answeredClaimColumns = [
  { name: 'key_hash', type: 'uuid' },
  { name: 'principal', type: 'text' },
  { name: 'operation', type: 'text' },
  { name: 'idem_key', type: 'text' },
  { name: 'request_hash', type: 'bytea' },
  { name: 'hash_version', type: 'smallint' },
  { name: 'response_code', type: 'int' },
  { name: 'response_headers', type: 'json' },
  { name: 'response_body', type: 'bytea' },
  { name: 'render_version', type: 'smallint' },
] as const;

export function answeredClaims(claims: readonly { intent: Intent; answer: Answer }[]): unknown[][] {
  return [
    claims.map(({ intent }) => keyHash(intent)),
    claims.map(({ intent }) => intent.principal),
    claims.map(({ intent }) => intent.operation),
    claims.map(({ intent }) => intent.key),
    claims.map(({ intent }) => `\\x${intent.requestHash}`),
    claims.map(({ intent }) => intent.hashVersion),
    ...answerColumns(claims.map(({ answer }) => answer)),
  ];
}

/**
 * Claims the rows of `source`, which has the columns above, with answers that are known beforehand: stored with the
 * claim they cost less than in a row of their own. Gives the key hashes of those that nobody had claimed.
 */
export function claimAnswered(schema: string, source: string): string {
  const columns = answeredClaimColumns.map(({ name }) => name).join(', ');
  return `INSERT INTO ${schema}.idempotency_keys (${columns})
    SELECT ${columns} FROM ${source} ORDER BY key_hash ON CONFLICT DO NOTHING RETURNING key_hash`;
}

function answerColumns(answers: readonly Answer[]): unknown[][] {
  return [
    answers.map(({ code }) => code),
    answers.map(({ headers }) => headers && JSON.stringify(headers)),
    answers.map(({ body }) => body && Buffer.from(body.buffer, body.byteOffset, body.byteLength)),
    answers.map(({ version }) => version),
  ];
}

function compare(row: Record<string, unknown>, intent: Intent): Known {
  const sameKey =
    row['principal'] === intent.principal && row['operation'] === intent.operation && row['idem_key'] === intent.key;
  // 2^64 keys until one is to be expected; of UUIDv7, 2^40 of one millisecond. Never another caller's answer, not even then.
  if (!sameKey) throw new TwiceproofError('TP_KEY_COLLISION', 'two keys have the same 128-bit hash');
  const requestHash = (row['request_hash'] as Buffer).toString('hex');
  const stored = { requestHash, hashVersion: row['hash_version'] as number };
  if (!isSameRequest(stored, intent)) return 'mismatch';
  return {
    answer: {
      code: row['response_code'] as number,
      headers: row['response_headers'] as Record<string, string> | null,
      body: row['response_body'] as Buffer | null,
      version: row['render_version'] as number,
    },
  };
}
