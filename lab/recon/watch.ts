import { createMetrics, type Metrics } from '@twiceproof/program/metrics';
import type { Progress } from './recon.ts';

export interface Watch {
  metrics: Metrics;
  progress(progress: Progress): void;
  stop(): void;
}

const sayEveryMs = 2_000;

/** Whoever waits for more than two seconds is told what for. */
export function watchRecon(say: (line: string) => void): Watch {
  const metrics = createMetrics();
  const steps = metrics.counter('recon_steps_total', 'Steps begun, by what is done in them.', ['step']);
  const began = performance.now();
  let now = { phase: 'connecting', rows: 0, bytes: 0, sinceMs: began };
  metrics.gauge('recon_rows', 'Rows and records of the sets that are read.', () => now.rows);
  metrics.gauge('recon_bytes', 'Bytes read so far.', () => now.bytes);
  metrics.gauge('recon_seconds', 'For how long it has been running.', () => secondsSince(began));
  metrics.gauge('recon_step_seconds', 'For how long it has been at this step.', () => secondsSince(now.sinceMs));
  const timer = setInterval(() => {
    const read = `${now.rows.toLocaleString('en')} rows and ${Math.round(now.bytes / 1e6)} MB read`;
    say(`${now.phase}; ${read}, ${Math.round(secondsSince(began))} s`);
  }, sayEveryMs).unref();
  return {
    metrics,
    progress: ({ phase, rows, bytes }) => {
      const isNew = phase !== now.phase;
      // Only the first word of it: a label names no file.
      if (isNew) steps(phase.split(' ')[0]!);
      now = { phase, rows, bytes, sinceMs: isNew ? performance.now() : now.sinceMs };
    },
    stop: () => clearInterval(timer),
  };
}

function secondsSince(ms: number): number {
  return Math.round(performance.now() - ms) / 1_000;
}
