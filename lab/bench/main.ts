/** `npm run bench`: measures, and judges by bars. */
import { randomInt } from 'node:crypto';
import { join, resolve } from 'node:path';
import { EXIT, main, Refusal, type Context, type FlagSpecs } from '@twiceproof/program';
import { targets } from './bars.ts';
import { benchEdge } from './bench.ts';
import { caseNames, scales } from './cases.ts';
import { canReadCpu } from './cpu.ts';
import { inboxTargets } from './inbox/bars.ts';
import { benchInbox } from './inbox/bench.ts';
import { caseNames as inboxCaseNames, scales as inboxScales } from './inbox/cases.ts';
import { benchKeys } from './inbox/keys-command.ts';
import { benchRecon } from './recon/bench.ts';
import { relayTargets } from './relay/bars.ts';
import { benchRelay } from './relay/bench.ts';
import { caseNames as relayCaseNames, scales as relayScales } from './relay/cases.ts';
import { systemTargets } from './system/bars.ts';
import { benchSystem } from './system/bench.ts';
import { scales as systemScales } from './system/cases.ts';

const flags = {
  quick: { type: 'boolean', help: 'a tenth of the rows and shorter runs; 5 or 6 minutes in all' },
  only: {
    type: 'string',
    help: `some of ${[caseNames, relayCaseNames, inboxCaseNames].map((names) => names.join(', ')).join('; or ')}; with commas between`,
  },
  out: { type: 'string', help: 'directory for result.json and plot.svg; lab/results/NAME[-quick], unless --only' },
  keys: {
    type: 'integer',
    default: 100_000_000,
    min: 10_000,
    max: 1_000_000_000,
    help: 'of inbox-keys: in the large inbox',
  },
  orders: {
    type: 'integer',
    min: 1_000,
    max: 50_000_000,
    help: 'of recon: in the run that is judged; otherwise 6,000,000, or 300,000 in --quick',
  },
  data: { type: 'string', default: '.twiceproof/inbox-keys', help: 'of inbox-keys: where its tables are kept' },
  seed: { type: 'integer', min: 0, max: 4_294_967_295, help: 'otherwise a random one, which is printed' },
} as const satisfies FlagSpecs;

const reconOrders = { full: 6_000_000, quick: 300_000 };

await main({
  name: 'bench',
  summary: 'Measures on servers of its own, in an open model, and exits with 1 when a bar is not reached.',
  commands: {
    edge: 'idempotency at the edge: throughput, latency, CPU, hot keys',
    relay: 'from the outbox to Kafka: throughput, latency, CPU, lag, beside a ceiling, a baseline and a peer',
    inbox: 'from Kafka to charges: throughput, CPU, the dedup store, its expiry, latency, beside the textbook',
    system: 'everything at once, from a request to its charge: latency, CPU of each process, lag, the highest rate',
    recon: 'how long the reconciler takes for a run of --orders, and what it costs',
    'inbox-keys': 'the dedup store at --keys, in a directory that is kept: a fill that was broken off goes on',
  },
  flags,
  run: bench,
});

async function bench({ command: name, flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  if (!canReadCpu) throw new Refusal('The cost of each process is read from /proc.', 'Run it on Linux.');
  const size = given.quick ? 'quick' : 'full';
  const seed = given.seed ?? randomInt(2 ** 32);
  const words = [given.quick ? '--quick' : '', given.only === undefined ? '' : `--only ${given.only}`];
  const command = [`npm run bench -- ${name}`, ...words, `--seed ${seed}`].filter((word) => word !== '').join(' ');
  // A part must not take the place of the whole.
  const directory = given.out ?? (given.only === undefined ? resultsOf(name, size) : undefined);
  const call = { command, seed, directory };
  if (name === 'inbox-keys') {
    const { keys, data } = given;
    const again = `${command} --keys=${keys} --data=${data}`;
    const paths = { data: resolve(data), directory: given.out ?? resultsOf(name, 'full') };
    return benchKeys({ ...call, ...paths, command: again, keys, targets: inboxTargets }, output, signal);
  }
  if (name === 'inbox') {
    const only = given.only === undefined ? inboxCaseNames : casesFrom(given.only, inboxCaseNames);
    return benchInbox({ ...call, scale: inboxScales[size], only, targets: inboxTargets }, output, signal);
  }
  if (name === 'relay') {
    const only = given.only === undefined ? relayCaseNames : casesFrom(given.only, relayCaseNames);
    return benchRelay({ ...call, scale: relayScales[size], only, targets: relayTargets }, output, signal);
  }
  if (name === 'system') {
    if (given.only !== undefined) throw new Refusal('The whole system has no parts.', 'Leave --only out.', EXIT.usage);
    return benchSystem({ ...call, scale: systemScales[size], targets: systemTargets }, output, signal);
  }
  if (name === 'recon') {
    const { orders = reconOrders[size], out } = given;
    if (given.only !== undefined) throw new Refusal('It has no parts.', 'Leave --only out.', EXIT.usage);
    const again = given.orders === undefined ? command : `${command} --orders=${orders}`;
    // What is of another size must not take the place of what everybody can repeat.
    const place = out ?? (orders === reconOrders[size] ? directory : undefined);
    return benchRecon({ ...call, command: again, orders, directory: place }, output, signal);
  }
  const only = given.only === undefined ? scales[size].cases : casesFrom(given.only, caseNames);
  return benchEdge({ ...call, scale: scales[size], only, targets }, output, signal);
}

function resultsOf(name: string, size: keyof typeof scales): string {
  return join(import.meta.dirname, '../results', size === 'quick' ? `${name}-quick` : name);
}

function casesFrom<Name extends string>(text: string, names: readonly Name[]): Name[] {
  const wanted = text.split(',').map((word) => word.trim());
  const unknown = wanted.filter((word) => !names.some((name) => name === word));
  if (unknown.length === 0) return names.filter((name) => wanted.includes(name));
  throw new Refusal(`There is no case ${unknown.join(', ')}.`, `There is ${names.join(', ')}.`, EXIT.usage);
}
