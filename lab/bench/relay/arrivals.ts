/**
 * Reads a topic as any consumer would, and compares each record's arrival with the time in its payload, which is that of
 * the commit (see rows.ts); and with it the time at which the broker has appended the record. Ends when all have come.
 */
import { Consumer } from '@platformatic/kafka';
import { EXIT, main, type Context, type FlagSpecs } from '@twiceproof/program';
import { createHistogram, record, summarize, type Histogram, type Summary } from '../../load/histogram.ts';

const flags = {
  brokers: { type: 'string', env: 'KAFKA_BROKERS', help: 'where the topic is' },
  topic: { type: 'string', default: 'events', help: 'from its beginning' },
  rows: { type: 'integer', default: 1_000, min: 1, max: 100_000_000, help: 'how many will come' },
} as const satisfies FlagSpecs;

export interface Arrivals {
  /** Of the rows that were to come. */
  missing: number;
  duplicates: number;
  /** By phase. */
  arrived: Record<string, Summary>;
  appended: Record<string, Summary>;
}

if (import.meta.main) {
  await main({ name: 'arrivals', summary: 'From commit to arrival, of every record of a topic.', flags, run });
}

async function run({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  const consumer = new Consumer({
    clientId: 'arrivals',
    groupId: `arrivals-${given.topic}`,
    bootstrapBrokers: (given.brokers ?? '').split(','),
  });
  const stream = await consumer.consume({
    topics: [given.topic],
    autocommit: false,
    mode: 'earliest',
    // It answers as soon as there is a record; this is how long it waits for one.
    maxWaitTime: 500,
    minBytes: 1,
  });
  const seen = new Uint8Array(given.rows + 1);
  let came = 0;
  let duplicates = 0;
  const arrived = new Map<string, Histogram>();
  const appended = new Map<string, Histogram>();
  signal.addEventListener('abort', () => {
    stream.destroy();
  });
  output.ready({ pid: process.pid });
  try {
    for await (const { value, timestamp } of stream) {
      const now = Date.now();
      const { at, phase, n } = JSON.parse(value.toString()) as { at: number; phase: number; n: number };
      if (n > given.rows) continue;
      if (seen[n]) duplicates += 1;
      else came += 1;
      seen[n] = 1;
      add(arrived, phase, now - at / 1_000);
      add(appended, phase, Number(timestamp) - at / 1_000);
      if (came === given.rows) break;
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  const result: Arrivals = {
    missing: given.rows - came,
    duplicates,
    arrived: summaries(arrived),
    appended: summaries(appended),
  };
  output.emit({ result });
  await consumer.close(true);
  return EXIT.ok;
}

/** Two clocks with different resolution may make it look negative. */
function add(histograms: Map<string, Histogram>, phase: number, ms: number): void {
  const histogram = histograms.get(String(phase)) ?? createHistogram();
  histograms.set(String(phase), histogram);
  record(histogram, Math.max(0, ms));
}

function summaries(histograms: ReadonlyMap<string, Histogram>): Record<string, Summary> {
  return Object.fromEntries([...histograms].map(([phase, histogram]) => [phase, summarize(histogram)]));
}
