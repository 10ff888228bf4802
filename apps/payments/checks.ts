import type pg from 'pg';
import { EXIT, Refusal } from '@twiceproof/program';
import { TwiceproofError } from 'twiceproof/errors';
import { serverProblems } from 'twiceproof/server';
import type { Transport } from 'twiceproof/transport';
import { experimentsIn, namesIn, type PaymentsFlags } from './flags.ts';
import { decideRetention, type Retention } from './retention.ts';
import { migratePayments } from './schema.ts';

export interface Checked {
  given: PaymentsFlags;
  pool: pg.Pool;
  transport: Transport;
  /** What is only weak is refused there, and warned of elsewhere. */
  production: boolean;
  warn(line: string): void;
}

interface Reason {
  problem: string;
  todo: string;
}

/** Before anything is asked of a server. */
export function refuseExperiments({ given, production, warn }: Pick<Checked, 'given' | 'production' | 'warn'>): void {
  const experiments = experimentsIn(given);
  if (production && experiments.length > 0) {
    throw new Refusal(
      experiments.map((text) => `${text}.`).join('\n'),
      'These are for experiments: leave them out, or unset NODE_ENV=production.',
      EXIT.usage,
    );
  }
  for (const text of experiments) warn(`WARNING: ${text}.`);
}

/** What must not be consumed from, or into, is refused: with all the reasons at once. The database is migrated then. */
export async function requireFit(checked: Checked): Promise<Retention> {
  const [ofDatabase, ofBroker] = await Promise.all([reasonsOfDatabase(checked), askBroker(checked)]);
  const [first, ...others] = [...ofDatabase, ...ofBroker.reasons];
  if (first || !ofBroker.retention) {
    const more = others.map(({ problem, todo }) => `${problem}\n  ${todo}`);
    throw new Refusal(first?.problem ?? '', [first?.todo ?? '', ...more].join('\n'), EXIT.environment);
  }
  return ofBroker.retention;
}

async function reasonsOfDatabase({ given, pool, production, warn }: Checked): Promise<Reason[]> {
  try {
    const problems = await serverProblems(pool);
    const problem = `The database cannot be trusted: ${problems.join('; ')}.`;
    if (problems.length > 0 && production) {
      return [{ problem, todo: 'Correct the settings of the server, or use another.' }];
    }
    if (problems.length > 0) warn(`WARNING: ${problem}`);
    await migratePayments(pool, { uniqueCharge: !given['no-unique-charge'] });
    return [];
  } catch (error) {
    const { message, code = '' } = error as { message?: string; code?: string };
    if (code === '23505') {
      return [
        {
          problem: 'There are orders with two charges, so no constraint can forbid them.',
          todo: 'Remove what an experiment has left, or use another database.',
        },
      ];
    }
    return [
      {
        problem: `The database cannot be used: ${message || code}.`,
        todo: 'Check DATABASE_URL, that the server runs, and that this user may create tables.',
      },
    ];
  }
}

async function askBroker(checked: Checked): Promise<{ reasons: Reason[]; retention?: Retention }> {
  const { given, transport } = checked;
  const topics = namesIn(given.topics);
  try {
    const reasons = await reasonsOfTopics(checked, topics);
    if (reasons.length > 0) return { reasons };
    return { reasons, retention: decideRetention(await transport.topicTimes!(topics), given) };
  } catch (error) {
    if (!(error instanceof TwiceproofError)) throw error;
    return { reasons: [{ problem: `${error.message}.`, todo: error.todo }] };
  }
}

async function reasonsOfTopics({ transport, production, warn }: Checked, topics: readonly string[]): Promise<Reason[]> {
  // What is too large for the topic never gets there, so it is nothing to us.
  const problems = (await transport.topicProblems?.(topics, { recordBytes: 0 })) ?? [];
  return problems.flatMap(({ topic, kind, detail }) => {
    const problem = `Topic ${topic}: ${detail}.`;
    if (kind === 'weak' && !production) {
      warn(`WARNING: ${problem}`);
      return [];
    }
    return [{ problem, todo: todos[kind] }];
  });
}

const todos = {
  missing: 'Create the topic, or correct --topics.',
  compacted: 'Set cleanup.policy=delete on the topic. What was deleted so far does not come back.',
  small: 'Raise max.message.bytes of the topic.',
  weak: 'Correct the topic. What is acknowledged must not be lost with one machine.',
} as const;
