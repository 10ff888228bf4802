// Runs before every npm script, on whatever Node the machine has (so plain JavaScript, and old
// syntax): installs the dependencies when they are missing or older than the lockfile, and makes
// sure that the Node which will run the script can run TypeScript as it is.
import { execSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';

process.chdir(dirname(dirname(fileURLToPath(import.meta.url))));

const installed = 'node_modules/.twiceproof-lock.json';
