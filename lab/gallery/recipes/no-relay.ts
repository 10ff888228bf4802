/** For recipes that publish by themselves. */
import { runRelay } from '../relay.ts';

await runRelay({ name: 'no-relay', pass: async () => 0 });
