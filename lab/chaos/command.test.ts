import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FlagSpecs } from '@twiceproof/program';
import { commandOf } from './command.ts';

const help = '';
const flags: FlagSpecs = {
  quick: { type: 'boolean', help },
  seed: { type: 'integer', min: 0, max: 9, help },
  rate: { type: 'integer', min: 1, max: 900, default: 500, help },
  replay: { type: 'string', help },
  out: { type: 'string', help },
};

test('what decides what happens is in the command, with the seed that was drawn; what says where it is told is not', () => {
  assert.equal(commandOf(flags, { quick: true, rate: 500, out: 'there' }, 7), 'npm run chaos -- --quick --seed=7');
  assert.equal(commandOf(flags, { quick: false, rate: 40, seed: 8 }, 8), 'npm run chaos -- --rate=40 --seed=8');
  assert.equal(
    commandOf(flags, { rate: 500, replay: 'a/schedule.json' }, 7),
    'npm run chaos -- --replay=a/schedule.json',
  );
});
