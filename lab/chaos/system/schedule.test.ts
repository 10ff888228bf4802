import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { sends } from '../../proxy/fault.ts';
import { inWords, isWireFault, wireKinds } from './fault.ts';
import {
  crashPoints,
  drawSchedule,
  kindsOf,
  shotSchedule,
  targetOf,
  withOnly,
  type CrashPoint,
  type Schedule,
} from './schedule.ts';
import { points, roles, wires } from './places.ts';

const options = { seed: 1, seconds: 90, rate: 500, uniqueCharge: false, minOrders: 20_000 };
const seeds = fc.integer({ min: 0, max: 2 ** 32 - 1 });
const allKinds = ['kill', 'freeze', 'postgres-kill', 'broker-kill', 'rebalance', ...wireKinds].sort();

test('the same seed gives the same schedule, another seed another', () => {
  assert.deepEqual(drawSchedule(options), drawSchedule(options));
  assert.notDeepEqual(drawSchedule(options).faults, drawSchedule({ ...options, seed: 2 }).faults);
});

test('whatever the seed, each kind comes, to every kind of program, within the time, at places that exist', () => {
  fc.assert(
    fc.property(seeds, (seed) => {
      const { faults } = drawSchedule({ ...options, seed });
      assert.deepEqual(kindsOf({ faults }), allKinds);
      for (const action of ['kill', 'freeze']) {
        for (const kind of ['orders', 'relay', 'payments']) {
          assert.ok(faults.some((fault) => fault.kind === action && 'role' in fault && fault.role.startsWith(kind)));
        }
      }
      for (const fault of faults) {
        assert.ok(fault.atMs >= 0 && fault.atMs + ('forMs' in fault ? fault.forMs : 0) <= 90_000);
        if (isWireFault(fault)) assert.ok(wires.includes(fault.wire));
        else if ('role' in fault) {
          assert.ok(roles.includes(fault.role));
          if (fault.position) assert.ok(points[fault.role.split('-')[0]!]!.includes(fault.position.point));
        }
      }
    }),
  );
});

test('a fault on a wire is over before the next on the same wire begins', () => {
  fc.assert(
    fc.property(seeds, (seed) => {
      const overAtMs = new Map<string, number>();
      for (const fault of drawSchedule({ ...options, seed }).faults.filter(isWireFault)) {
        assert.ok(fault.atMs >= (overAtMs.get(targetOf(fault)) ?? 0), JSON.stringify(fault));
        overAtMs.set(targetOf(fault), fault.atMs + fault.forMs);
      }
    }),
  );
});

/** As node-postgres sends them: a simple query is its text and a NUL. */
test('a fault at COMMIT is at no BEGIN, and a lost answer is that to COMMIT', () => {
  const all = [1, 2, 3, 4].flatMap((seed) => drawSchedule({ ...options, seed, seconds: 900 }).faults);
  const atCommit = all.filter(isWireFault).filter(({ sends: text }) => text !== undefined);
  assert.deepEqual([...new Set(atCommit.map(({ kind }) => kind))].sort(), ['cut', 'lose-answer']);
  for (const fault of atCommit) {
    const isHit = sends(fault.sends!);
    assert.ok(isHit(Buffer.from('Q\0\0\0\x0bCOMMIT\0')));
    assert.ok(!isHit(Buffer.from('Q\0\0\0\x28BEGIN ISOLATION LEVEL READ COMMITTED\0')));
    assert.ok(fault.kind !== 'lose-answer' || fault.bytes! < 18);
    assert.match(inWords(fault), / at COMMIT, /);
  }
});

test('in a long run some stand still for longer than a transaction of a consumer may', () => {
  const standing = ({ faults }: Pick<Schedule, 'faults'>): number[] =>
    faults.flatMap((fault) => (fault.kind === 'freeze' ? [fault.forMs] : []));
  const long = standing(drawSchedule({ ...options, seconds: 600 }));
  assert.ok(long.some((ms) => ms > 30_000) && long.some((ms) => ms < 30_000));
  assert.ok(standing(drawSchedule(options)).every((ms) => ms > 10_000 && ms < 30_000));
});

test('a longer time has more faults, as dense as a short one', () => {
  const short = drawSchedule(options).faults.length;
  const long = drawSchedule({ ...options, seconds: 900 }).faults.length;
  assert.ok(long > 8 * short && long < 14 * short, `${short} and ${long}`);
});

test('a headline shot kills at its point only, either process', () => {
  for (const shot of Object.keys(crashPoints) as CrashPoint[]) {
    const { faults } = shotSchedule(shot, { ...options, seconds: 30 });
    const killed = faults.map((fault) => (fault.kind === 'kill' ? [fault.role, fault.position?.point] : []));
    assert.deepEqual(new Set(killed.map(([, point]) => point)), new Set([crashPoints[shot].point]));
    assert.equal(new Set(killed.map(([role]) => role)).size, 2);
  }
  const chargeFirst = shotSchedule('effect', { ...options, effectOrder: 'charge-first' });
  assert.ok(chargeFirst.faults.every((fault) => 'position' in fault && fault.position?.point === 'inbox:asking'));
});

test('with fewer faults it takes no longer than they do, and is otherwise the same', () => {
  const whole = drawSchedule(options);
  const first = withOnly(whole.faults.slice(0, 1), whole);
  assert.ok(first.seconds < 30, `${first.seconds} s`);
  assert.deepEqual([first.seed, first.rate, first.dupRate], [whole.seed, whole.rate, whole.dupRate]);
  assert.equal(withOnly(whole.faults, whole).seconds, whole.seconds);
});

test('who is aimed at is killed more often, by turns, at his own points, and each kill waits until the end', () => {
  const { faults } = drawSchedule({ ...options, seconds: 40, aim: { payments: ['recipe:marked'] } });
  const aimed = faults.flatMap((fault) => (fault.kind === 'kill' && fault.withinMs !== undefined ? [fault] : []));
  assert.deepEqual(
    aimed.map(({ role, position }) => [role, position?.point]),
    ['payments-1', 'payments-2', 'payments-1', 'payments-2'].map((role) => [role, 'recipe:marked']),
  );
  assert.deepEqual(
    aimed.map(({ atMs, withinMs = 0 }) => atMs + withinMs),
    aimed.map(() => 40_000),
  );
});

test('wires that shall be away are cut at once, and nothing else strikes them meanwhile', () => {
  const outages = ['payments-1:postgres', 'payments-2:postgres'];
  fc.assert(
    fc.property(seeds, (seed) => {
      const { faults } = drawSchedule({ ...options, seed, seconds: 40, outages });
      const [first, second, ...others] = faults.filter(isWireFault);
      assert.deepEqual([first?.wire, second?.wire], outages);
      assert.equal(first!.atMs, second!.atMs);
      for (const { wire, atMs, forMs } of [first!, second!]) {
        assert.ok(others.every((other) => other.wire !== wire || other.atMs >= atMs + forMs));
      }
    }),
  );
});
