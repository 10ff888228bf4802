import type { TestEvent } from 'node:test/reporters';

/** What the judge needs of a test run, as one line of JSON each. */
export type Line =
  | { type: 'start'; name: string; nesting: number }
  | { type: 'pass'; name: string; nesting: number }
  | { type: 'fail'; name: string; nesting: number; failure: string; message: string }
  | { type: 'stderr'; message: string }
  /** The file came to its end: without this line its process died on the way. */
  | { type: 'end' };

/** A reporter for `node --test`. */
export default async function* report(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  for await (const event of events) {
    const line = toLine(event);
    if (line) yield `${JSON.stringify(line)}\n`;
  }
}

function toLine(event: TestEvent): Line | undefined {
  switch (event.type) {
    case 'test:start':
      return { type: 'start', name: event.data.name, nesting: event.data.nesting };
    case 'test:pass':
      // A suite is no test. One that fails by itself, in a hook, is told like one.
      if (event.data.details.type === 'suite') return undefined;
      return { type: 'pass', name: event.data.name, nesting: event.data.nesting };
    case 'test:fail': {
      const { name, nesting, details } = event.data;
      const { failureType, message, cause } = details.error as Error & { failureType?: string };
      const reason = cause instanceof Error ? cause.message : message;
      return { type: 'fail', name, nesting, failure: failureType ?? '', message: reason };
    }
    case 'test:stderr':
      return { type: 'stderr', message: event.data.message };
    case 'test:summary':
      return event.data.file === undefined ? undefined : { type: 'end' };
    default:
      return undefined;
  }
}
