/** What a run of the load generator needs to know. Units are in the names. */
export type Spacing = 'constant' | 'jitter' | 'poisson';

/** How the retried requests divide among the ways in which clients retry. Any weights; they need not sum to 1. */
export interface RetryMix {
  /** All attempts at the same moment, to one process. */
  atOnce: number;
  /** Each attempt some time after the answer to the one before. */
  afterAnswer: number;
  /** All attempts at the same moment, each to the next process. */
  elsewhere: number;
  /** Every attempt but the last loses its connection: half of them once sent, half at the answer's first byte. */
  cut: number;
}

export interface LoadOptions {
  /** `http://127.0.0.1:port` of each process; requests are spread over these and the addresses below. */
  urls: readonly string[];
  /** `host:port` where each process serves gRPC. */
  grpc: readonly string[];
  /** Requests a second, retries included: intents come at rate / (1 + 2 * retryRate). */
  rate: number;
  durationS: number;
  /** Latencies of the first seconds stay out of the totals; the seconds and the counts show them all the same. */
  warmupS: number;
  /** Share of intents that are sent 2 to 4 times instead of once. */
  retryRate: number;
  mix: RetryMix;
  /** Share of intents that change the status of an order that this run has made. */
  statusRate: number;
  /** How much earlier that order was asked for, at the least: its answer should be there by then. */
  statusLagMs: number;
  /** How long after an outcome the next attempt follows, for the kinds of retry that wait for one. */
  retryDelayMs: number;
  /** Zipf exponent of the keys that are retried. */
  hot: number;
  /** Size of the key space: the first fiftieth is the hot set, the rest are keys that are used once. */
  keys: number;
  /** Connections in all; a request that finds none free waits, and its wait counts. */
  clients: number;
  seed: number;
  /** Keys are UUIDv7 that are born from then on, as we tell clients to make them; undefined for version 4. */
  bornAtMs: number | undefined;
  /** Between intents. */
  spacing: Spacing;
  /** `name: value`, by which the server tells whose keys these are. */
  principalHeader: string;
  /** From the intended send time; then the outcome is unknown. */
  timeoutMs: number;
  /** Requests that may wait for a connection; beyond it they are dropped, and the run is not valid. */
  maxWaiting: number;
  maxResponseBytes: number;
  /** How long keys of an unknown outcome are asked again once the schedule is over. */
  settleS: number;
}

export const defaults = {
  urls: ['http://127.0.0.1:3000'],
  grpc: [],
  rate: 1_000,
  durationS: 30,
  warmupS: 0,
  retryRate: 0.15,
  // A cut costs both sides a new connection, about ten times the work of a request: 5 % keeps that out of the figures.
  mix: { atOnce: 40, afterAnswer: 40, elsewhere: 15, cut: 5 },
  statusRate: 0,
  statusLagMs: 1_000,
  retryDelayMs: 20,
  hot: 1.1,
  keys: 50_000_000,
  // Enough that 5,000 requests/s find a free connection through a stall of 50 ms.
  clients: 256,
  bornAtMs: undefined,
  spacing: 'constant',
  principalHeader: 'authorization: Bearer tenant-1',
  timeoutMs: 10_000,
  // 20 s of 5,000 requests/s: more than a timeout lets gather.
  maxWaiting: 100_000,
  maxResponseBytes: 65_536,
  settleS: 0,
} as const satisfies Omit<LoadOptions, 'seed'>;

/** Every place that requests go to; `target` of a request counts from 0 in this list. */
export function targetsOf({ urls, grpc }: Pick<LoadOptions, 'urls' | 'grpc'>): string[] {
  return [...urls, ...grpc.map((address) => `grpc://${address}`)];
}

/** Sends that an intent takes on average: one, and for the retried ones 1 to 3 more. */
export function sendsPerIntent({ retryRate }: Pick<LoadOptions, 'retryRate'>): number {
  return 1 + 2 * retryRate;
}

export function hotSetSize({ keys }: Pick<LoadOptions, 'keys'>): number {
  return Math.ceil(keys / 50);
}

/** Every problem at once. */
export function problemsOf(options: LoadOptions): string[] {
  const { urls, grpc, rate, durationS, warmupS, retryRate, statusRate, mix, hot } = options;
  const { keys, clients, seed, timeoutMs, settleS } = options;
  const targets = targetsOf(options).length;
  const weights = Object.values(mix);
  const cold = Math.ceil((durationS * rate * (1 - retryRate)) / sendsPerIntent(options));
  const checks: [boolean, string][] = [
    [targets > 0, 'there is a url or a gRPC address'],
    [urls.every(isPlainUrl), 'each url is http://host:port and nothing more'],
    [grpc.every(isAddress), 'each gRPC address is host:port'],
    [rate > 0 && rate <= 1_000_000, 'rate is above 0 and at most 1000000'],
    [durationS > 0 && durationS <= 86_400, 'duration is above 0 s and at most a day'],
    [warmupS >= 0 && warmupS < durationS, 'warmup is shorter than the duration'],
    [retryRate >= 0 && retryRate <= 1, 'retry-rate is from 0 to 1'],
    [statusRate >= 0 && statusRate <= 1, 'status-rate is from 0 to 1'],
    [weights.every((weight) => weight >= 0) && weights.some((weight) => weight > 0), 'the mix of retries has weights'],
    [hot >= 0 && hot <= 10, 'hot is from 0 to 10'],
    [Number.isInteger(keys) && keys > 0 && keys < 2 ** 32, 'keys is a whole number from 1 to 2^32 - 1'],
    [Number.isInteger(clients) && clients >= targets, 'clients is a whole number, at least one for each target'],
    [Number.isInteger(seed) && seed >= 0 && seed < 2 ** 32, 'seed is a whole number from 0 to 2^32 - 1'],
    [timeoutMs > 0, 'timeout-ms is above 0'],
    [settleS >= 0 && settleS <= 86_400, 'settle is from 0 s to a day'],
    [/^[!#$%&'*+.^_`|~\w-]+: [\x20-\x7e]+$/.test(options.principalHeader), 'principal-header is "name: value"'],
    // With a margin for Poisson spacing. A cold key that came twice would be a retry that nobody counts.
    [
      cold + 5 * Math.sqrt(cold) + 10 <= keys - hotSetSize(options),
      `keys is too small: ${cold} intents need a key each`,
    ],
  ];
  return checks.filter(([fine]) => !fine).map(([, problem]) => problem);
}

function isAddress(text: string): boolean {
  return /^([\w.-]+|\[[\da-f:.]+\]):\d{1,5}$/i.test(text);
}

function isPlainUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const url = new URL(text);
  return url.protocol === 'http:' && url.pathname === '/' && url.search === '' && url.username === '';
}
