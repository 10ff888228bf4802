/** How the scripts of npm start our programs: for the young generation and the old one see docs/operations.md. */
export const nodeFlags = ['--conditions=twiceproof-source', '--max-semi-space-size=16', '--heap-growing-percent=400'];
