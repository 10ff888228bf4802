/** The status for machines, beside the /metrics of every program. */
import { createAdminServer, listenAdmin } from '@twiceproof/program/admin';
import { createMetrics } from '@twiceproof/program/metrics';
import type { Invariant } from './invariant.ts';
import type { StatusSource } from './status.ts';

export async function serveStatus(status: StatusSource, port: number): Promise<{ address: string; close(): void }> {
  const metrics = createMetrics();
  metrics.gauge('system_restarts', 'How often a process was started again, all together.', () =>
    status.latest().processes.reduce((sum, { restarts }) => sum + restarts, 0),
  );
  // Who could not decide has not found that there are none.
  const found = (): Invariant | undefined => {
    const { invariant } = status.latest();
    return invariant?.verdict === 'undecided' ? undefined : invariant;
  };
  metrics.gauge('system_lost', 'Intents without an effect, as the reconciler found last.', () => found()?.lost);
  metrics.gauge('system_doubled', 'Effects that were made twice, as it found last.', () => found()?.doubled);
  metrics.gauge('system_other_orders', 'Orders that the traffic did not ask for.', () => found()?.others);
  const ready = async (): Promise<void> => {
    const away = status.latest().processes.filter(({ state }) => state !== 'running');
    if (away.length > 0) throw new Error(`these are away: ${away.map(({ name }) => name).join(', ')}`);
  };
  const server = createAdminServer({ metrics, ready, json: { '/status': () => status.latest() } });
  return {
    address: await listenAdmin(server, port),
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
