/**
 * The judge. It reads everything into temporary tables of one session and compares them there, by sets.
 *
 * The order in which it reads. Whatever is done has a cause that was written down before: a line of the ledger, then the
 * order with its outbox row (one transaction), then the record on the topic, then inbox row, effect and charge (one
 * transaction). Nothing of it is taken away again while we read. So consequences are read first and causes last, and on
 * a system that goes on working meanwhile:
 * - The cause of everything that was read is read too, since it is older. What has none is a phantom, at any time.
 * - What stands twice was read from one snapshot. It is doubled, at any time.
 * - A cause may be younger than the reading of its consequences. Therefore a step is judged as lost only if its cause is
 *   older than the horizon, counted back from the first read: the answer, the append, the time of the record. If no step
 *   of the system ever takes longer, what had to follow was there. What is younger is judged by the next look. Nothing is
 *   found clean for good because it was not looked at: whatever is lost stays lost, and gets older than any horizon.
 * - What one transaction wrote is read in one snapshot (REPEATABLE READ), so between those sets no time passes at all.
 * - A parked message that is released goes from its table to the topic, against the order above. So that table is read
 *   once more before the topic: what stood there then is not missed on the topic, and what had left it is a young record.
 * After a drain there is no horizon, and everything is judged.
 */
import { createWriteStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { mergeSets, type Config } from './config.ts';
import { copyIn, copyOut } from './copy.ts';
import { deltas, invariants, type Circumstances, type Delta } from './invariants.ts';
import { openLedger, type Ledger } from './ledger.ts';
import { openSessions, type Sessions } from './sessions.ts';
import { homes, missingColumns, ownSets, selectAll, type SetName, type Sets } from './sets.ts';
import { createTables, loadLedger, prepare } from './tables.ts';
import { openTopics, type Span } from './topic.ts';
import { orUndecided, Undecided } from './undecided.ts';

export interface ReconOptions {
  /** Files of the load generator. None where the configuration says how to select intents. */
  ledgers: readonly string[];
  /** Where orders and outbox are. The temporary tables of the judge are there too. */
  databaseUrl: string;
  /** Where charges and inbox are. */
  paymentsUrl: string;
  brokers: string;
  topics: readonly string[];
  /** Whose orders they must be. Defaults to what each ledger says. */
  tenant?: string | undefined;
  /** How many of each delta are named. Defaults to 20. */
  idsShown?: number;
  config: Config;
  /** What is younger is not judged as lost. Defaults to judging everything. */
  horizonMs?: number | undefined;
  /** A file for the records of the topic, one to a line, if anything is wrong: the topic may be gone when somebody asks. */
  messagesTo?: string | undefined;
  signal: AbortSignal;
  onProgress?(progress: Progress): void;
}

export interface Progress {
  /** What it is at. */
  phase: string;
  /** Read so far: bytes as they come, rows when a set is read. */
  rows: number;
  bytes: number;
}

export interface Found {
  count: number;
  /** The first of them, in the order of their text. */
  ids: string[];
}

export interface Report {
  verdict: 'clean' | 'violated' | 'undecided';
  counts: Record<string, number>;
  /** Those that were compared: of the others nothing is known. */
  deltas: Partial<Record<Delta, Found>>;
  /** Why it could not decide. */
  reasons: string[];
  tookMs: number;
  /** Where the time went. */
  stepsMs: Record<string, number>;
}

const usualIds = 20;

/** Never throws: what it cannot read, it cannot decide. */
export async function reconcile(options: ReconOptions): Promise<Report> {
  const started = performance.now();
  const report: Report = { verdict: 'undecided', counts: {}, deltas: {}, reasons: [], tookMs: 0, stepsMs: {} };
  let sessions: Sessions | undefined;
  try {
    sessions = await orUndecided('a database cannot be reached', async () => openSessions(options));
    await judge(sessions, options, report);
  } catch (error) {
    const stopped = options.signal.aborted ? `it was stopped (${String(options.signal.reason)}): ` : '';
    report.reasons.push(`${stopped}${error instanceof Undecided ? error.message : String(error)}`);
  } finally {
    await sessions?.close();
  }
  report.verdict = isAnythingWrong(report) ? 'violated' : report.reasons.length > 0 ? 'undecided' : 'clean';
  report.tookMs = Math.round(performance.now() - started);
  return report;
}

async function judge(sessions: Sessions, options: ReconOptions, report: Report): Promise<void> {
  const { judge: session, payments } = sessions;
  const horizonMs = options.horizonMs ?? -Infinity;
  const nowMs = Date.now();
  const dbNowMs = await clockOf(session);
  const ledgers = await openLedgers(options.ledgers);
  const tenants = options.tenant === undefined ? ledgers.map(({ principal }) => principal) : [options.tenant];
  const sets = mergeSets(ownSets({ topics: options.topics, tenants }), options.config);
  await createTables(session);
  const reading = loader(session, options, report.stepsMs);
  await reading.sets(payments, homes.payments, sets);
  await reading.parkedBefore(sets);
  const spans = await reading.topics();
  await reading.sets(session, homes.orders, sets);
  await reading.intents(sets, ledgers);
  await reading.step('sorting', async () => prepare(session, { byLedger: sets.intents === undefined }));

  const cut = spans.filter(({ first }) => first > 0n);
  for (const { topic, partition, first } of cut) {
    report.reasons.push(`${topic}/${partition} begins at ${first}: what was before is deleted`);
  }
  report.counts = await reading.step('counting', async () => countAll(session));
  const circumstances: Circumstances = {
    sets,
    nowMs,
    byLedger: sets.intents === undefined,
    consumers: options.config.consumers,
    cutoffMs: Math.min(dbNowMs - horizonMs, Number.MAX_SAFE_INTEGER),
    toldCutoffMs: Math.min(nowMs - horizonMs, Number.MAX_SAFE_INTEGER),
    beginningIsGone: cut.length > 0,
  };
  report.counts['notJudged'] = await notJudged(session, circumstances);
  const selects = invariants(circumstances);
  for (const delta of deltas.filter((name) => selects[name].length > 0)) {
    report.deltas[delta] = await reading.step(`comparing (${delta})`, async () =>
      violations(session, selects[delta], options.idsShown ?? usualIds),
    );
  }
  const { messagesTo } = options;
  if (messagesTo !== undefined && isAnythingWrong(report)) {
    const text = 'COPY (SELECT * FROM recon_messages ORDER BY topic, partition, position) TO STDOUT (HEADER)';
    await reading.step('writing the records down', async () =>
      pipeline(copyOut(session, text), createWriteStream(messagesTo)),
    );
  }
}

/** Each step is told, counted, timed, and ends in `Undecided` if it fails. */
function loader(
  session: pg.Client,
  { signal, onProgress, config, ...options }: ReconOptions,
  stepsMs: Record<string, number>,
) {
  let [rows, bytes] = [0, 0];
  const step = async <T>(name: string, work: () => Promise<T>, file?: string): Promise<T> => {
    const phase = file === undefined ? name : `${name} ${file}`;
    signal.throwIfAborted();
    onProgress?.({ phase, rows, bytes });
    const began = performance.now();
    try {
      return await orUndecided(phase, work);
    } finally {
      stepsMs[name] = (stepsMs[name] ?? 0) + Math.round(performance.now() - began);
    }
  };
  const counted = async function* (phase: string, source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of source) {
      bytes += chunk.length;
      onProgress?.({ phase, rows, bytes });
      yield chunk;
    }
  };
  const copy = async (table: string, phase: string, source: AsyncIterable<Buffer>): Promise<void> => {
    rows += await copyIn(session, `COPY recon_${table} FROM STDIN`, counted(phase, source));
  };
  const read = async (from: pg.Client, name: SetName, sets: Sets, table: string = name): Promise<void> => {
    const select = sets[name];
    if (select === undefined) return;
    const phase = `reading ${name}`;
    await step(phase, async () => {
      const given = (await from.query(`SELECT * FROM (${select}) AS one LIMIT 0`)).fields.map((field) => field.name);
      const missing = missingColumns(name, given);
      if (missing.length > 0) throw new Error(`it does not give ${missing.join(', ')}`);
      const selected = selectAll(name, select, given);
      // What is in the judge's own database need not go through this process.
      if (from === session) rows += (await session.query(`INSERT INTO recon_${table} ${selected}`)).rowCount ?? 0;
      else await copy(table, phase, copyOut(from, `COPY (${selected}) TO STDOUT`));
    });
  };
  return {
    step,
    sets: async (from: pg.Client, names: readonly SetName[], sets: Sets): Promise<void> => {
      await step('taking a snapshot', async () => from.query('BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY'));
      for (const name of names) await read(from, name, sets);
      await from.query('COMMIT');
    },
    parkedBefore: async (sets: Sets): Promise<void> => read(session, 'parked', sets, 'parked_before'),
    topics: async (): Promise<readonly Span[]> =>
      step('reading the topic', async () => {
        const topics = await openTopics({ ...options, idHeader: config.idHeader, signal });
        try {
          await copy('messages', 'reading the topic', topics.lines());
          return topics.spans;
        } finally {
          await topics.close();
        }
      }),
    intents: async (sets: Sets, ledgers: readonly Ledger[]): Promise<void> => {
      await read(session, 'intents', sets);
      for (const [n, ledger] of ledgers.entries()) {
        const load = async (): Promise<void> => {
          // It may have grown since its first line was read.
          rows += await loadLedger(session, await openLedger(ledger.path), options.tenant ?? ledger.principal, n);
        };
        await step('reading the ledger', load, ledger.path);
      }
    },
  };
}

async function openLedgers(paths: readonly string[]): Promise<Ledger[]> {
  return Promise.all(paths.map(async (path) => orUndecided('a ledger cannot be read', async () => openLedger(path))));
}

async function clockOf(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ ms: number }>(
    'SELECT extract(epoch FROM clock_timestamp())::float8 * 1000 AS ms',
  );
  return rows[0]!.ms;
}

/** Of this run only; `otherOrders` are of other runs in the same tables, which are not judged. */
async function countAll(session: pg.Client): Promise<Record<string, number>> {
  const counted = {
    requests: 'SELECT count(*) FROM recon_intents',
    // By their keys. The next four are what became of them, and add up to it.
    intents: 'SELECT count(*) FROM recon_keys',
    answered: 'SELECT count(*) FROM recon_keys WHERE oks > 0',
    unknown: 'SELECT count(*) FROM recon_keys WHERE oks = 0 AND unknowns > 0',
    // By an answer, at least once: whether that is right depends on what was asked.
    refused: 'SELECT count(*) FROM recon_keys WHERE oks = 0 AND unknowns = 0 AND refusals > 0',
    // There was no connection: nobody knows of them but the one who asked.
    neverSent: 'SELECT count(*) FROM recon_keys WHERE oks = 0 AND unknowns = 0 AND refusals = 0',
    // Beyond the first of each key: nothing more was to be done for them.
    replayedAnswers: 'SELECT coalesce(sum(oks - 1), 0) FROM recon_keys WHERE oks > 1',
    orders: 'SELECT count(*) FROM recon_own',
    otherOrders: 'SELECT count(*) FROM recon_others',
    outboxRows: 'SELECT count(*) FROM recon_outbox',
    messages: 'SELECT count(*) FROM recon_first',
    wireDuplicates: 'SELECT coalesce(sum(times - 1), 0) FROM recon_first',
    inboxRows: 'SELECT count(*) FROM recon_inbox i WHERE EXISTS (SELECT FROM recon_outbox b WHERE b.msg_id = i.msg_id)',
    charges: 'SELECT count(*) FROM recon_charges',
    effects: 'SELECT count(*) FROM recon_effects',
    held: 'SELECT count(*) FROM recon_held',
    parked: 'SELECT count(*) FROM recon_parked',
  };
  const selected = Object.entries(counted).map(([name, text]) => `(${text})::float8 AS "${name}"`);
  const { rows } = await session.query<Record<string, number>>(`SELECT ${selected.join(', ')}`);
  return rows[0]!;
}

/** Intents that were answered, and messages that were appended, too short a time ago. */
async function notJudged(session: pg.Client, { cutoffMs, toldCutoffMs }: Circumstances): Promise<number> {
  const { rows } = await session.query<{ count: number }>(
    `SELECT greatest((SELECT count(*) FROM recon_keys WHERE told_ms > ${toldCutoffMs}),
       (SELECT count(*) FROM recon_outbox WHERE at_ms > ${cutoffMs}))::float8 AS count`,
  );
  return rows[0]!.count;
}

/** An id that breaks several invariants of one kind counts once. */
async function violations(session: pg.Client, selects: readonly string[], idsShown: number): Promise<Found> {
  const { rows } = await session.query<Found>(
    `WITH found (id) AS MATERIALIZED (SELECT DISTINCT * FROM (${selects.join(' UNION ALL ')}) AS all_of_them)
     SELECT count(*)::float8 AS count,
       ARRAY(SELECT id FROM found ORDER BY id COLLATE "C" LIMIT ${idsShown}) AS ids FROM found`,
  );
  return rows[0]!;
}

function isAnythingWrong({ deltas: compared }: Report): boolean {
  return Object.values(compared).some(({ count }) => count > 0);
}
