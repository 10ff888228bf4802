/** Waits until its owner is gone, then ends what the owner left. See run.ts. */
import { once } from 'node:events';
import { endRun } from './run.ts';

const directory = process.argv[2];
if (!directory) throw new Error('the reaper needs the directory of a run');
process.stdin.resume();
await once(process.stdin, 'close');
await endRun(directory);
