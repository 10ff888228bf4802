/** Waits until the supervisor is gone, however it went, then ends what it has left. See supervise.ts. */
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { endAllOf } from './ours.ts';

const directory = process.argv[2];
if (!directory) throw new Error('the reaper needs the directory of a supervisor');
process.stdin.resume();
await once(process.stdin, 'close');
await endAllOf(directory);
rmSync(directory, { recursive: true, force: true });
