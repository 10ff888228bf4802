/** Runs test files, each in a process of its own, and collects what happened in each. */
import { once } from 'node:events';
import { join } from 'node:path';
import { run } from 'node:test';

export interface FileResult {
  file: string;
  passed: number;
  failures: { name: string; reason: string }[];
  /** A test that says itself that it did not run, and why. */
  notRun: { name: string; why: string }[];
  ms: number;
}

interface RunOptions {
  root: string;
  concurrency: number;
  env: NodeJS.ProcessEnv;
  progress: (text: string) => void;
  signal: AbortSignal;
  /** Nothing that hangs may hang the whole run. */
  fileTimeoutMs: number;
}

export async function runFiles(files: readonly string[], options: RunOptions): Promise<FileResult[]> {
  const results: FileResult[] = [];
  const waiting = [...files];
  const worker = async (): Promise<void> => {
    for (let file = waiting.shift(); file && !options.signal.aborted; file = waiting.shift()) {
      const began = Date.now();
      const running = file;
      const stillAtIt = setInterval(() => {
        options.progress(`...      ${running} (${Math.round((Date.now() - began) / 1000)} s so far)`);
      }, 15_000);
      const result = await runFile(file, options).finally(() => clearInterval(stillAtIt));
      results.push(result);
      const verdict = result.failures.length > 0 ? `${result.failures.length} FAILED` : 'ok';
      options.progress(`${verdict.padEnd(8)} ${file} (${result.passed} passed, ${(result.ms / 1000).toFixed(1)} s)`);
      for (const { name, reason } of result.failures) options.progress(indent(`not ok: ${name}\n${reason}`));
    }
  };
  await Promise.all(Array.from({ length: options.concurrency }, worker));
  return results;
}

async function runFile(file: string, { root, env, signal, fileTimeoutMs }: RunOptions): Promise<FileResult> {
  const began = Date.now();
  // Node's own `timeout` does not end a process that something keeps alive after its last test.
  const tooLong = AbortSignal.timeout(fileTimeoutMs);
  const result: FileResult = { file, passed: 0, failures: [], notRun: [], ms: 0 };
  const printed: string[] = [];
  const stream = run({
    files: [join(root, file)],
    cwd: root,
    execArgv: ['--conditions=twiceproof-source'],
    env: { ...process.env, ...env },
    signal: AbortSignal.any([signal, tooLong]),
  });
  stream.on('test:stdout', ({ message }) => printed.push(message));
  stream.on('test:stderr', ({ message }) => printed.push(message));
  // An error after the end of its test comes as a remark, and makes the file red.
  stream.on('test:diagnostic', ({ message }) => {
    if (message.startsWith('Error')) printed.push(`${message}\n`);
  });
  // Node reports a file without tests as a test that passed.
  const isFile = (name: string): boolean => name === file || name === join(root, file);
  stream.on('test:pass', ({ name, details, skip, todo }) => {
    if (details.type === 'suite' || isFile(name)) return;
    // A conformance suite names what does not apply to the one that it tries.
    const why = skip ?? todo ?? /\(does not apply: (.*)\)$/.exec(name)?.[1];
    if (why === undefined) result.passed += 1;
    else result.notRun.push({ name, why: typeof why === 'string' && why !== '' ? why : 'no reason given' });
  });
  stream.on('test:fail', ({ name, details }) => {
    // A suite fails because a test of it did, and that one is told already.
    if ((details.error as { failureType?: string }).failureType === 'subtestsFailed') return;
    if (isFile(name) && result.failures.length > 0) return;
    result.failures.push({ name: isFile(name) ? file : name, reason: reasonOf(details.error) });
  });
  let cameToItsEnd = false;
  stream.on('test:summary', (data) => {
    cameToItsEnd ||= data.file !== undefined;
  });
  stream.resume();
  await once(stream, 'end');
  result.ms = Date.now() - began;
  if (tooLong.aborted) {
    result.failures.push({ name: file, reason: `its process did not end within ${fileTimeoutMs / 1000} s` });
  }
  if (result.failures.length > 0 && printed.length > 0) {
    result.failures.push({ name: '(what the file printed)', reason: printed.join('').slice(-4_000) });
  }
  // A file that calls process.exit(0) on the way would look green.
  const told = result.passed + result.failures.length + result.notRun.length;
  if (result.failures.length === 0 && (told === 0 || !cameToItsEnd)) {
    result.failures.push({ name: file, reason: 'it holds no test, or its process ended before its tests did' });
  }
  return result;
}

function reasonOf(error: Error): string {
  const cause = error.cause instanceof Error ? error.cause : error;
  return cause.stack ?? cause.message;
}

function indent(text: string): string {
  return text.replaceAll(/^/gm, '    ');
}
