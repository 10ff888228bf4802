/**
 * `npm run bench -- inbox`: what the inbox reaches and costs. The same servers for all; what is compared takes turns within
 * each round, so that whatever drifts on this machine hits all of it alike.
 */
import { startWorld, type Database, type World } from '../relay/world.ts';
import type { CaseName, InboxScale } from './cases.ts';
import { fillTopics, runConsume, type ConsumeRound, type Topics } from './consuming.ts';
import { runExpiry, type ExpiryRound } from './expiry.ts';
import { measureKeys, storeName, storeSpecs, type KeysRound, type Store } from './keys.ts';
import { latencyRates, measureLatency, type LatencyRound } from './latency.ts';
import { fillStore } from './store.ts';

export interface InboxRound {
  consume?: ConsumeRound;
  keys?: KeysRound;
  expiry?: ExpiryRound;
  latency?: LatencyRound;
}

export interface InboxOptions {
  scale: InboxScale;
  only: readonly CaseName[];
  seed: number;
  signal: AbortSignal;
  progress(text: string): void;
}

export interface InboxRounds {
  rounds: InboxRound[];
  versions: { postgres: string; kafka?: string };
}

export async function runInbox(options: InboxOptions): Promise<InboxRounds> {
  const { scale, only, seed, signal, progress } = options;
  const world = await startWorld(seed, signal);
  try {
    const usesKafka = only.includes('consume') || only.includes('latency');
    if (usesKafka) progress(`bench: filling three topics with ${scale.consume.messages} messages each`);
    // Until Java has compiled what is hot, a broker needs three times the CPU: so for latencies too.
    const topics = usesKafka ? await fillTopics(world, scale.consume, signal) : undefined;
    const inRounds = async (run: (say: (text: string) => void) => Promise<InboxRound>): Promise<InboxRound[]> => {
      const done: InboxRound[] = [];
      for (let round = 1; round <= scale.rounds; round += 1) {
        done.push(await run((text) => progress(`bench: round ${round} of ${scale.rounds}, ${text}`)));
      }
      return done;
    };
    const fromKafka = await inRounds(async (say) => consumeInRound({ ...options, world, say }, topics));
    // Last, so that whatever millions of new keys leave the server to do is not beside the latencies.
    const stores = only.includes('keys') ? await fillStores(world, options) : [];
    const ofStores = await inRounds(async (say) => storeInRound({ ...options, world, say }, stores));
    const rounds = fromKafka.map((round, n) => ({ ...round, ...ofStores[n] }));
    return { rounds, versions: { postgres: world.postgres.version, kafka: world.kafka.version } };
  } finally {
    await world.close();
  }
}

async function fillStores(world: World, { scale, signal, progress }: InboxOptions): Promise<Store[]> {
  const stores: Store[] = [];
  for (const spec of storeSpecs(scale.keys)) {
    const { client, url }: Database = await world.database({ shape: 'ours', shards: 1 }, 0);
    await fillStore(client, spec, { url, signal, progress: (text) => progress(`bench: ${text}`) });
    stores.push({ ...spec, name: storeName(spec), url, client });
  }
  return stores;
}

interface RoundContext extends InboxOptions {
  world: World;
  say(text: string): void;
}

async function consumeInRound(context: RoundContext, topics: Topics | undefined): Promise<InboxRound> {
  const { world, scale, only, signal, say } = context;
  const round: InboxRound = {};
  if (topics && only.includes('consume'))
    round.consume = await runConsume({ world, scale: scale.consume, topics, signal, say });
  if (only.includes('latency')) {
    signal.throwIfAborted();
    round.latency = await measureLatency({ world, scale: scale.latency, signal, say });
    const each = latencyRates.map((rate) => `p99 ${round.latency?.rates[rate]?.p99Ms} ms at ${rate}/s`);
    say(`latency: ${each.join(', ')}`);
  }
  return round;
}

async function storeInRound(context: RoundContext, stores: readonly Store[]): Promise<InboxRound> {
  const { world, scale, only, signal, say } = context;
  const round: InboxRound = {};
  if (stores.length > 0) {
    round.keys = await measureKeys(stores, scale.keys.batches, signal);
    const each = Object.entries(round.keys).map(([name, run]) => `${name} ${run.insertP99Us} us`);
    say(`keys, p99 of 500: ${each.join(', ')}`);
  }
  if (only.includes('expiry')) {
    signal.throwIfAborted();
    round.expiry = await runExpiry({ world, scale: scale.expiry, signal });
    const { small, large, loaded, open } = round.expiry;
    const longest = `longest accept ${loaded.longestAcceptMs} ms, beside an open transaction ${open.longestAcceptMs} ms`;
    say(`expiry: ${small.expiryMs} ms and ${large.expiryMs} ms, DELETE ${large.deleteMs} ms; ${longest}`);
  }
  return round;
}
