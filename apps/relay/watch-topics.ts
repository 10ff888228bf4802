import { setTimeout as delay } from 'node:timers/promises';
import type { Metrics } from '@twiceproof/program/metrics';
import type { TopicProblem } from 'twiceproof/transport';
import { inWords } from './checks.ts';

export interface TopicWatchOptions {
  metrics: Metrics;
  look(): Promise<TopicProblem[]>;
  /** How much was wrong when they were looked at last. */
  atStart: number;
  everyMs: number;
  log(line: string): void;
}

/**
 * Topics were right at the start, and are changed later: each time something is wrong with one, a line says so. The relay
 * goes on, since what the topic takes is better published than not.
 */
export async function watchTopics(options: TopicWatchOptions, signal: AbortSignal): Promise<void> {
  const { metrics, look, atStart, everyMs, log } = options;
  let count: number | undefined = atStart;
  metrics.gauge('relay_topic_problems', 'What is wrong with the topics, counted.', () => count);
  const stopped = new Promise<undefined>((resolve) => signal.addEventListener('abort', () => resolve(undefined)));
  for (;;) {
    await delay(everyMs, undefined, { signal }).catch(() => {});
    if (signal.aborted) return;
    try {
      const problems = await Promise.race([look(), stopped]);
      count = problems?.length;
      for (const problem of problems ?? []) {
        log(JSON.stringify({ level: problem.kind === 'weak' ? 'warning' : 'error', message: inWords(problem) }));
      }
    } catch (error) {
      count = undefined;
      const { code, message } = error as { code?: unknown; message?: unknown };
      log(JSON.stringify({ level: 'warning', code, message }));
    }
  }
}
