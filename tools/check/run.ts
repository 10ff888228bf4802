import { spawn } from 'node:child_process';

export interface Step {
  name: string;
  what: string;
  /** Run by Node: a script with its arguments. */
  command: readonly [script: string, ...args: string[]];
}

export interface StepResult {
  step: Step;
  ok: boolean;
  seconds: number;
  output: string;
}

/** The steps that the names ask for (all of them for no name), or the names that nobody knows. */
export function chooseSteps(steps: readonly Step[], names: readonly string[]): { chosen: Step[]; unknown: string[] } {
  const unknown = names.filter((name) => !steps.some((step) => step.name === name));
  const chosen = names.length === 0 ? [...steps] : steps.filter((step) => names.includes(step.name));
  return { chosen, unknown };
}

/** Runs every step, whatever becomes of the others, a few at a time; each is handed over as it ends. */
export async function runSteps(
  steps: readonly Step[],
  options: { cwd: string; atOnce: number; onEnd: (result: StepResult) => void },
): Promise<StepResult[]> {
  const waiting = [...steps];
  const results: StepResult[] = [];
  const worker = async () => {
    for (let step = waiting.shift(); step; step = waiting.shift()) {
      const result = await runStep(step, options.cwd);
      results.push(result);
      options.onEnd(result);
    }
  };
  await Promise.all(Array.from({ length: options.atOnce }, worker));
  return results;
}

function runStep(step: Step, cwd: string): Promise<StepResult> {
  const started = performance.now();
  return new Promise((resolve) => {
    const child = spawn(process.execPath, step.command, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    const keep = (chunk: string) => (output += chunk);
    child.stdout.setEncoding('utf8').on('data', keep);
    child.stderr.setEncoding('utf8').on('data', keep);
    const end = (ok: boolean) => resolve({ step, ok, seconds: (performance.now() - started) / 1000, output });
    child.on('error', (error) => {
      output += error.message;
      end(false);
    });
    child.on('close', (code, signal) => {
      if (signal) output += `ended by ${signal}`;
      end(code === 0);
    });
  });
}
