import type pg from 'pg';
import { TwiceproofError } from 'twiceproof/errors';
import { serverProblems } from 'twiceproof/server';
import type { Source } from 'twiceproof/source';
import type { TopicProblem, Transport } from 'twiceproof/transport';
import { EXIT, Refusal } from '@twiceproof/program';

export interface Checked {
  pool: pg.Pool;
  source: Source;
  transport: Transport;
  topics: readonly string[];
  /** What is only weak is refused there, and warned of elsewhere. */
  production: boolean;
  warn(line: string): void;
}

/**
 * The outbox takes messages of 1,000,000 bytes: payload, key, type and headers. On the wire the key comes once more, and
 * the names of 38 headers and the frames around them.
 */
const recordBytes = 1_002_048;

interface Reason {
  problem: string;
  todo: string;
}

/**
 * What must not be published from, or to, is refused: with all the reasons at once. Answers how much is wrong with the
 * topics all the same.
 */
export async function requireFit(checked: Checked): Promise<number> {
  const [ofDatabase, { reasons, warnings }] = await Promise.all([reasonsOfDatabase(checked), reasonsOfTopics(checked)]);
  const [first, ...others] = [...ofDatabase, ...reasons];
  if (!first) return warnings;
  const more = others.map(({ problem, todo }) => `${problem}\n  ${todo}`);
  throw new Refusal(first.problem, [first.todo, ...more].join('\n'), EXIT.environment);
}

async function reasonsOfDatabase({ pool, source, production, warn }: Checked): Promise<Reason[]> {
  try {
    await source.check();
    // The last table that was added for the relay. Not the table of migrations: who applies them by hand has none.
    await pool.query('SELECT FROM twiceproof.relay_parked LIMIT 0');
    const problems = await serverProblems(pool);
    if (problems.length === 0) return [];
    const problem = `The database cannot be trusted: ${problems.join('; ')}.`;
    if (production) return [{ problem, todo: 'Correct the settings of the server, or use another.' }];
    warn(`WARNING: ${problem}`);
    return [];
  } catch (error) {
    return [whyNoOutbox(error)];
  }
}

/** No such table, schema or column. */
const notMigrated = ['42P01', '3F000', '42703'];

function whyNoOutbox(error: unknown): Reason {
  if (error instanceof TwiceproofError) return { problem: `${error.message}.`, todo: error.todo };
  const { message, code = '' } = error as { message?: string; code?: string };
  if (notMigrated.includes(code)) {
    return { problem: `The database is not migrated: ${message}.`, todo: 'Run the migrations (`twiceproof migrate`).' };
  }
  return {
    problem: `The outbox cannot be read: ${message || code}.`,
    todo: 'Check DATABASE_URL, that the server runs, and what its user may do (`twiceproof sql --roles`).',
  };
}

async function reasonsOfTopics(checked: Checked): Promise<{ reasons: Reason[]; warnings: number }> {
  const { transport, topics, production, warn } = checked;
  let problems: TopicProblem[];
  try {
    problems = await findTopicProblems(transport, topics);
  } catch (error) {
    if (!(error instanceof TwiceproofError)) throw error;
    return { reasons: [{ problem: `${error.message}.`, todo: error.todo }], warnings: 0 };
  }
  const refused = problems.filter(({ kind }) => production || kind !== 'weak');
  const warnings = problems.filter((problem) => !refused.includes(problem));
  for (const problem of warnings) warn(`WARNING: ${inWords(problem)}.`);
  const reasons = refused.map((problem) => ({ problem: `${inWords(problem)}.`, todo: todos[problem.kind] }));
  return { reasons, warnings: warnings.length };
}

const todos: Record<TopicProblem['kind'], string> = {
  missing: 'Create the topic, or correct --topics.',
  compacted: 'Set cleanup.policy=delete on the topic. What was deleted so far does not come back.',
  small: 'Raise max.message.bytes of the topic: a message that it does not take makes its key wait for a person.',
  weak: 'Correct the topic. What is acknowledged must not be lost with one machine.',
};

export async function findTopicProblems(transport: Transport, topics: readonly string[]): Promise<TopicProblem[]> {
  return (await transport.topicProblems?.(topics, { recordBytes })) ?? [];
}

export function inWords({ topic, detail }: TopicProblem): string {
  return `Topic ${topic}: ${detail}`;
}
