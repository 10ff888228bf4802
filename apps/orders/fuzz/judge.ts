import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type pg from 'pg';
import type { HttpAnswer } from './client.ts';
import { createLedger } from './ledger.ts';
import type { Case, Wanted } from './request.ts';

const page = readFileSync(join(import.meta.dirname, '../../../docs/problems.md'), 'utf8');
export const documentedProblems = [...page.matchAll(/^## (\S+)$/gm)].map(([, name]) => name!);
const problemType = (name: string): string => `urn:twiceproof:problem:${name}`;
const orderUnknown = 'urn:twiceproof-orders:problem:order-unknown';
const knownTypes = new Set([...documentedProblems.map(problemType), orderUnknown, 'about:blank']);

export type Judge = ReturnType<typeof createJudge>;

/** Hears every answer over HTTP. */
export function createJudge() {
  const ledger = createLedger();
  const counts = new Map<number, number>();
  /** By what the request was about: one that fails a thousand times is one failure. */
  const failures = new Map<string, string>();

  function hear(one: Case, answer: HttpAnswer): void {
    counts.set(answer.status, (counts.get(answer.status) ?? 0) + 1);
    try {
      hearOne(one, answer);
    } catch (error) {
      const sent = JSON.stringify(one.bytes).slice(0, 600);
      failures.set(one.about, `${String(error)}\nto ${sent}: ${answer.status} ${answer.body.slice(0, 600)}`);
    }
  }

  function hearOne(one: Case, answer: HttpAnswer): void {
    assert.ok(answer.status >= 200 && answer.status < 500);
    const type = typeOf(one, answer);
    if (answer.status === 201) ledger.promised((JSON.parse(answer.body) as { order_id: string }).order_id);
    const { expected } = one;
    if (expected.kind === 'wanted') return hearWanted(expected.wanted, answer, type);
    if (expected.kind === 'open') return;
    assert.ok(answer.status >= 400 || (expected.kind === 'read' && answer.status === 200));
    if (expected.kind === 'refused' && expected.as) assert.equal(type, problemType(expected.as));
  }

  function hearWanted(wanted: Wanted, answer: HttpAnswer, type: string | undefined): void {
    if (type === problemType('key-reused')) return ledger.reused(wanted);
    const isUnknown = type === orderUnknown;
    assert.ok(isUnknown || answer.status === (wanted.operation === 'orders.create' ? 201 : 200), 'it is right');
    const kept = ['content-type', 'etag', 'location'].map((header) => answer.headers.get(header));
    ledger.done(wanted, JSON.stringify([answer.status, kept, answer.body]), !isUnknown);
  }

  async function conclude(pool: pg.Pool, unanswered: number): Promise<void> {
    assert.equal(failures.size, 0, [...failures.values()].slice(0, 20).join('\n\n'));
    await ledger.compare(pool, unanswered);
  }

  return { hear, conclude, counts };
}

/** Unreadable, an unknown expectation, too many headers. */
const byNode = new Set([400, 417, 431]);

/** Every refusal of ours is a problem that the docs explain; what Node itself refuses to read need not be. */
function typeOf(one: Case, { status, headers, body }: HttpAnswer): string | undefined {
  if (status < 400 || one.bodiless) return undefined;
  const isProblem = headers.get('content-type')?.startsWith('application/problem+json');
  if (!isProblem && one.alone && byNode.has(status)) return undefined;
  assert.ok(isProblem, 'it is a problem');
  const problem = JSON.parse(body) as { type: string; status: number };
  assert.equal(problem.status, status);
  assert.ok(knownTypes.has(problem.type), 'the docs explain it');
  return problem.type;
}
