/** What a bench leaves behind: every figure of every round with all that is needed to run it again, and a plot. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { currentCommit, environment, type Environment } from '../shared/origin.ts';
import { medianOf, type Bar } from './bars.ts';
import type { Scale } from './cases.ts';
import type { EdgeRounds, Round } from './edge.ts';
import { plotEdge } from './plot.ts';
import { serverSettings } from './server.ts';

/** What every result begins with. */
export interface Outcome {
  /** Whether every bar was reached. */
  pass: boolean;
  bars: Bar[];
  command: string;
  seed: number;
  startedAt: string;
  tookS: number;
  /** Of the tree that was measured; `+` if files were changed since. */
  commit: string;
}

export interface EdgeResult extends Outcome {
  environment: Environment & { postgres: string; postgresSettings: Readonly<Record<string, string>> };
  scale: Scale;
  keysBefore: number;
  /** Of each number of the rounds. */
  median: Round;
  rounds: Round[];
}

export interface Began {
  at: Date;
  commit: string;
  /** With the load average before the first measurement. */
  environment: Environment;
}

export function begin(): Began {
  return { at: new Date(), commit: currentCommit(), environment: environment() };
}

/** An aim that is not reached fails nothing. */
export function outcomeOf(began: Began, { command, seed }: Pick<Outcome, 'command' | 'seed'>, bars: Bar[]): Outcome {
  return {
    pass: bars.every(({ kind, pass }) => pass || kind === 'aim'),
    bars,
    command,
    seed,
    startedAt: began.at.toISOString(),
    tookS: Math.round((Date.now() - began.at.getTime()) / 1_000),
    commit: began.commit,
  };
}

export function edgeResult(
  began: Began,
  call: { command: string; seed: number; scale: Scale },
  { rounds, keysBefore, postgresVersion }: EdgeRounds,
  bars: Bar[],
): EdgeResult {
  return {
    ...outcomeOf(began, call, bars),
    environment: { ...began.environment, postgres: postgresVersion, postgresSettings: serverSettings },
    scale: call.scale,
    keysBefore,
    median: medianOf(rounds),
    rounds,
  };
}

/** `result.json` and `plot.svg`. */
export function writeEdge(directory: string, result: EdgeResult): void {
  writeFiles(directory, result, plotEdge(result));
}

export function writeFiles(directory: string, result: object, plot: string): void {
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, 'result.json'), `${jsonText(result)}\n`);
  writeFileSync(join(directory, 'plot.svg'), plot);
}

const lineWidth = 120;

/** As Prettier has it: an object or array without others inside is one line where it fits. */
export function jsonText(value: unknown, indent = '', before = indent.length): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const isArray = Array.isArray(value);
  const entries = isArray ? value.map((each: unknown) => ['', each] as const) : Object.entries(value);
  const name = (key: string): string => (isArray ? '' : `${JSON.stringify(key)}: `);
  const [open, close] = isArray ? ['[', ']'] : ['{', '}'];
  if (entries.length === 0) return open + close;
  if (entries.every(([, each]) => typeof each !== 'object' || each === null)) {
    const line = entries.map(([key, each]) => name(key) + JSON.stringify(each)).join(', ');
    const text = isArray ? `[${line}]` : `{ ${line} }`;
    // With the comma that may follow.
    if (before + text.length < lineWidth) return text;
  }
  const deeper = `${indent}  `;
  const lines = entries.map(([key, each]) => {
    const head = deeper + name(key);
    return head + jsonText(each, deeper, head.length);
  });
  return `${open}\n${lines.join(',\n')}\n${indent}${close}`;
}
