import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { EXIT, helpText, parse, type Program } from './program.ts';

const flags = {
  rate: { type: 'integer', default: 100, min: 1, max: 5_000, help: 'requests a second' },
  relay: { type: 'choice', choices: ['poll', 'wal'], default: 'poll', help: 'the source' },
  'dry-run': { type: 'boolean', help: 'only say what would happen' },
  'database-url': { type: 'string', env: 'DATABASE_URL', help: 'where the data is' },
} as const;
const shares = { share: { type: 'number', default: 0.5, min: 0, max: 1, help: 'of all' } } as const;
const program: Program<typeof flags> = { name: 'demo', summary: 'A demo.', flags, run: async () => 0 };
const withCommands: Program<typeof flags> = { ...program, commands: { up: 'start', down: 'stop' } };

test('a flag wins over its variable, and the variable over the default', () => {
  const parsed = parse(program, ['--rate', '7', '--dry-run'], {
    TWICEPROOF_RATE: '9',
    TWICEPROOF_RELAY: 'wal',
    DATABASE_URL: 'x',
  });
  assert.ok(parsed.kind === 'run');
  assert.deepEqual(
    { ...parsed.flags },
    { rate: 7, relay: 'wal', 'dry-run': true, 'database-url': 'x', json: false, help: false },
  );
});

test('an empty variable counts as not set', () => {
  const parsed = parse(program, [], { TWICEPROOF_RATE: '', DATABASE_URL: '' });
  assert.ok(parsed.kind === 'run');
  assert.equal(parsed.flags.rate, 100);
  assert.equal(parsed.flags['database-url'], undefined);
});

test('every problem is reported at once, and names the flag or the variable it came from', () => {
  const parsed = parse(program, ['--rate=fast', '--nope', '--dry-run=yes', 'word'], { TWICEPROOF_RELAY: 'pigeon' });
  assert.ok(parsed.kind === 'wrong');
  assert.deepEqual(parsed.problems.toSorted(), [
    '--dry-run takes no value',
    "--rate is a whole number from 1 to 5000, not 'fast'",
    "TWICEPROOF_RELAY is one of poll, wal, not 'pigeon'",
    "unexpected 'word'",
    'unknown flag --nope',
  ]);
});

test('a number has its limits, and is written as people write it', () => {
  const sharing: Program<typeof shares> = { name: 'demo', summary: 'A demo.', flags: shares, run: async () => 0 };
  const flagsOf = (...args: string[]) => {
    const parsed = parse(sharing, args, {});
    return parsed.kind === 'run' ? parsed.flags.share : parsed.kind === 'wrong' && parsed.problems;
  };
  assert.deepEqual([flagsOf(), flagsOf('--share=.25'), flagsOf('--share=1')], [0.5, 0.25, 1]);
  for (const wrong of ['7', '1.0001', '-0.1', '1e-3', '0x1', 'half', '', '.']) {
    assert.deepEqual(flagsOf(`--share=${wrong}`), [`--share is a number from 0 to 1, not '${wrong}'`]);
  }
  assert.match(helpText(sharing), /--share N +of all \(0 to 1, default 0\.5\)/);
});

test('what is wrong between flags is reported with the rest, and a flag that is wrong by itself is left out of it', () => {
  const ranged: Program<typeof ranges> = {
    name: 'demo',
    summary: 'A demo.',
    flags: ranges,
    problems: ({ low, high }) => (low! >= high! ? [`--low is less than --high, not ${low} and ${high}`] : []),
    run: async () => 0,
  };
  assert.deepEqual(parse(ranged, ['--low=5', '--nope'], { TWICEPROOF_HIGH: '5' }), {
    kind: 'wrong',
    problems: ['unknown flag --nope', '--low is less than --high, not 5 and 5'],
  });
  assert.deepEqual(parse(ranged, ['--low=5', '--high=x'], {}), {
    kind: 'wrong',
    problems: ["--high is a whole number from 0 to 9, not 'x'"],
  });
  assert.equal(parse(ranged, ['--low=4', '--high=5'], {}).kind, 'run');
});

const ranges = {
  low: { type: 'integer', default: 0, min: 0, max: 9, help: '' },
  high: { type: 'integer', default: 9, min: 0, max: 9, help: '' },
} as const;

test('numbers outside their limits, fractions and a flag without its value are refused', () => {
  for (const rate of ['0', '5001', '1.5', '1e3', ''])
    assert.equal(parse(program, [`--rate=${rate}`], {}).kind, 'wrong', rate);
  assert.equal(parse(program, ['--rate'], {}).kind, 'wrong');
});

test('a command is required where there are commands, and an unknown one is named', () => {
  assert.deepEqual(parse(withCommands, [], {}), { kind: 'wrong', problems: ['a command is needed: up, down'] });
  assert.deepEqual(parse(withCommands, ['sideways'], {}), {
    kind: 'wrong',
    problems: ["unknown command 'sideways'; there is up, down"],
  });
  const parsed = parse(withCommands, ['down', '--rate', '3'], {});
  assert.ok(parsed.kind === 'run');
  assert.equal(parsed.command, 'down');
});

test('the help names every command, flag, default and variable', () => {
  assert.equal(parse(withCommands, ['--help', '--nope'], {}).kind, 'help');
  const text = helpText(withCommands);
  for (const part of [
    'npm run demo -- <command> [flags]',
    'up',
    'down',
    '--rate N',
    '(default 100)',
    '[TWICEPROOF_RATE]',
    'poll|wal',
    '[DATABASE_URL]',
    '--json',
    'Exit codes',
  ]) {
    assert.ok(text.includes(part), part);
  }
});

/** A real process, because signals and exit codes are what it is about. */
function startProgram(t: TestContext, run: string, args: string[] = []) {
  const directory = mkdtempSync(join(tmpdir(), 'twiceproof-program-'));
  const file = join(directory, 'main.mts');
  const module = JSON.stringify(join(import.meta.dirname, 'program.ts'));
  writeFileSync(
    file,
    `import { main, Refusal } from ${module};\nawait main({ name: 'demo', summary: '', flags: {}, run: async ({ output, signal }) => { ${run} } });\n`,
  );
  const child = spawn(process.execPath, [file, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  t.after(() => {
    child.kill('SIGKILL');
    rmSync(directory, { recursive: true });
  });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const lines = createInterface({ input: child.stdout });
  return { child, firstLine: once(lines, 'line'), ended: once(child, 'close'), stderr: () => stderr };
}

const drains = `output.ready({ url: 'x' }); await new Promise((done) => {
  const stay = setInterval(() => {}, 1000);
  signal.addEventListener('abort', () => { setTimeout(() => { clearInterval(stay); output.emit({ drained: true }); done(); }, 200); });
}); return 0;`;

test('the first JSON line says ready, SIGTERM drains, and the exit code is 0', async (t) => {
  const { child, firstLine, ended } = startProgram(t, drains, ['--json']);
  const [line] = (await firstLine) as [string];
  assert.deepEqual(JSON.parse(line), { ready: true, url: 'x' });
  child.kill('SIGTERM');
  assert.deepEqual(await ended, [0, null]);
});

test('one Ctrl-C that arrives twice still drains', async (t) => {
  const { child, firstLine, ended } = startProgram(t, drains, ['--json']);
  await firstLine;
  child.kill('SIGINT');
  child.kill('SIGINT');
  assert.deepEqual(await ended, [0, null]);
});

test('a refusal is shown without a stack and with its exit code, a bug with its stack and 1', async (t) => {
  const refused = startProgram(t, "throw new Refusal('No Java.', 'Install it.');");
  assert.deepEqual(await refused.ended, [EXIT.environment, null]);
  assert.equal(refused.stderr(), 'demo: No Java.\n  Install it.\n');
  const broken = startProgram(t, "throw new Error('a bug');");
  assert.deepEqual(await broken.ended, [EXIT.failed, null]);
  assert.match(broken.stderr(), /demo: Error: a bug\n +at /);
});

test('under --json a failure is a line too', async (t) => {
  const { firstLine, ended } = startProgram(t, "throw new Refusal('No Java.', 'Install it.');", ['--json']);
  const [line] = (await firstLine) as [string];
  assert.deepEqual(JSON.parse(line), { error: 'No Java.\n  Install it.' });
  await ended;
});

test('names that every object has are neither commands nor flags', () => {
  assert.equal(parse(withCommands, ['constructor'], {}).kind, 'wrong');
  assert.equal(parse(program, ['--constructor=x'], {}).kind, 'wrong');
});

test('a wrong call exits with 2 and points at the help', async (t) => {
  const wrong = startProgram(t, 'return 0;', ['--speed', '9']);
  assert.deepEqual(await wrong.ended, [EXIT.usage, null]);
  assert.match(wrong.stderr(), /demo: unknown flag --speed\n.*unexpected '9'\nSee: npm run demo -- --help\n/);
});
