/** The README's quickstart, word for word, by somebody who has installed the packed package into an empty project. */
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  accessSync,
  constants,
  mkdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer, type AddressInfo } from 'node:net';
import { delimiter, join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { copyTree } from './plants/copy.ts';

const root = join(import.meta.dirname, '..');
const run = promisify(execFile);
const databases = [await testDatabase(), await testDatabase()];

// In a copy, since packing builds `dist`, and somebody else may be doing that at the same time.
const copy = copyTree(root);
after(() => rmSync(copy.base, { recursive: true, force: true }));

/** The fenced blocks of the quickstart, in their order. */
const { install, server, requests, query } = readBlocks(readFileSync(join(root, 'README.md'), 'utf8'));

function readBlocks(page: string) {
  const section = /^## Quickstart\n([^]*?)^## /m.exec(page)?.[1] ?? '';
  const blocks = [...section.matchAll(/^```(\w+)\n([^]*?)^```$/gm)].map(([, language, text]) => ({
    language,
    text: text!,
  }));
  assert.deepEqual(
    blocks.map(({ language }) => language),
    ['sh', 'js', 'sh', 'sql'],
  );
  const [first, second, third, fourth] = blocks.map(({ text }) => text) as [string, string, string, string];
  return { install: first, server: second, requests: third, query: fourth };
}

const environment = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !/^(NODE_|npm_(?!config_)|npm_config_local_prefix$)/.test(name)),
);
/** Without what npm puts before it while it runs a script: so `node` is the one of this machine. */
const machinePath = (environment['PATH'] ?? '')
  .split(delimiter)
  .filter((folder) => !folder.endsWith(join('node_modules', '.bin')));

async function pack(): Promise<string> {
  const { stdout } = await run('npm', ['pack', '--pack-destination', copy.base], {
    cwd: join(copy.tree, 'packages/twiceproof'),
    env: { ...environment, PATH: [join(copy.tree, 'node_modules/.bin'), ...machinePath].join(delimiter) },
  });
  return join(copy.base, stdout.trim().split('\n').at(-1)!);
}

/** The versions that everything else here is tested with. */
function locked(name: string): string {
  const lockfile = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { version: string }>;
  };
  return `${name}@${lockfile.packages[`node_modules/${name}`]!.version}`;
}

const tarball = pack();

for (const [n, [whose, node]] of Object.entries({ machine: nodeOfMachine(), repository: process.execPath }).entries()) {
  test(`with the Node of this ${whose}: the answers, the order and the message are what the page says`, async (context) => {
    const folder = join(copy.temporary, whose);
    const bin = join(folder, 'bin');
    mkdirSync(bin, { recursive: true });
    symlinkSync(node, join(bin, 'node'));
    const port = await freePort();
    const { url } = databases[n]!;
    const env = { ...environment, PATH: [bin, ...machinePath].join(delimiter), DATABASE_URL: url, PORT: String(port) };
    const shell = async (text: string, cwd: string): Promise<string> =>
      (await run('sh', ['-ec', text], { cwd, env })).stdout;
    context.diagnostic(`node ${(await shell('node --version', folder)).trim()}`);

    const packages = `npm install --prefer-offline ${await tarball} ${locked('pg')} ${locked('fastify')}`;
    const said = await shell(replaced(install, 'npm install twiceproof pg fastify', packages), folder);
    assert.match(said, /Applied: 0001_outbox\.sql/);

    const shop = join(folder, 'shop');
    writeFileSync(join(shop, 'server.mjs'), server);
    const resolved = await shell(
      `node --input-type=module -e "console.log(import.meta.resolve('twiceproof/http'))"`,
      shop,
    );
    assert.match(resolved, /\/shop\/node_modules\/twiceproof\/dist\/http\/\w+\.js\n$/);

    const running = spawn('node', ['server.mjs'], { cwd: shop, env, stdio: ['ignore', 'ignore', 'pipe'] });
    let complaints = '';
    running.stderr.setEncoding('utf8').on('data', (text: string) => (complaints += text));
    const ended = once(running, 'close');
    context.after(async () => {
      running.kill();
      await ended;
    });
    await Promise.race([listens(port), ended.then(() => assert.fail(complaints))]);

    const promised = [...requests.matchAll(/^order .*# (.*)$/gm)].map(([, text]) => text);
    assert.equal(promised.length, 3);
    const answers = await shell(replaced(requests, 'localhost:3000', `localhost:${port}`), shop);
    assert.deepEqual(answers.trimEnd().split('\n'), promised);

    const client = new pg.Client(url);
    await client.connect();
    const { rows } = await client.query<Record<string, string>>(query);
    await client.end();
    const shown = [...query.matchAll(/^-- (.*)$/gm)].map(([, row]) => row!.split('|').map((value) => value.trim()));
    assert.deepEqual(rows.map(Object.values), shown);
    assert.equal(shown.length, 1);
    assert.equal(complaints, '');
  });
}

function nodeOfMachine(): string {
  const found = machinePath
    .map((folder) => join(folder, 'node'))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
  return realpathSync(found ?? process.execPath);
}

/** Exactly one place, or the page has changed and this must be looked at again. */
function replaced(text: string, place: string, by: string): string {
  assert.equal(text.split(place).length, 2, `one ${place} in ${text}`);
  return text.replace(place, () => by);
}

async function freePort(): Promise<number> {
  const listener = createServer();
  await once(listener.listen(0, '127.0.0.1'), 'listening');
  const { port } = listener.address() as AddressInfo;
  await new Promise((resolve) => listener.close(resolve));
  return port;
}

async function listens(port: number): Promise<void> {
  for (const deadline = Date.now() + 20_000; Date.now() < deadline;) {
    const socket = connect(port, 'localhost');
    const isUp = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (isUp) return;
    await delay(50);
  }
  assert.fail('it does not listen');
}
