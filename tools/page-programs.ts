/** Programs that stand in a page of the documentation, word for word, as processes of their own. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';

export const root = join(import.meta.dirname, '..');
export const ours = ['--conditions=twiceproof-source'];

export interface PageProgram {
  said(): string;
  /** SIGTERM; answers the exit code. */
  stop(): Promise<number | null>;
}

/** The block of code in a page that begins with its name. */
export function blockOf(page: string, name: string): string {
  const text = readFileSync(join(root, page), 'utf8');
  const found = new RegExp(`^\`\`\`js\n(// ${name}\n[^]*?)^\`\`\`$`, 'm').exec(text)?.[1];
  assert.ok(found, `${page} has no block ${name}`);
  return found;
}

/** A change that must have a place. */
export function replaced(text: string, from: string | RegExp, to: string): string {
  assert.equal(text.split(from).length, 2, `${String(from)} does not stand in it once`);
  return text.replace(from, () => to);
}

/** A folder for them inside the repository, so that `twiceproof` is found; what was started in it ends with the tests. */
export function openFolder(env: NodeJS.ProcessEnv) {
  mkdirSync(join(root, '.twiceproof'), { recursive: true });
  const folder = mkdtempSync(join(root, '.twiceproof/page-'));
  after(() => rmSync(folder, { recursive: true }));
  const write = (name: string, text: string): void => writeFileSync(join(folder, name), text);

  function start(name: string, text: string): PageProgram {
    write(name, text);
    const child = spawn(process.execPath, [...ours, join(folder, name)], {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let said = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (chunk: string) => (said += chunk));
    }
    const closed = once(child, 'close');
    after(async () => {
      child.kill('SIGKILL');
      await closed;
    });
    return {
      said: () => said,
      stop: async () => {
        child.kill('SIGTERM');
        return (await closed)[0] as number | null;
      },
    };
  }

  return { write, start };
}
