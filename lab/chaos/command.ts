/** The call that repeats a run. */
import type { FlagSpecs } from '@twiceproof/program';

/** They say where it is told, not what happens. */
const aside = ['seed', 'out', 'admin-port', 'no-shrink'];

/** With the seed that was drawn, unless a file has a schedule of its own. What is as it would be anyway is left out. */
export function commandOf(
  flags: FlagSpecs,
  given: Readonly<Record<string, string | number | boolean | undefined>>,
  seed: number,
): string {
  const words = Object.entries(flags).flatMap(([name, spec]) => {
    const value = given[name];
    const isUsual = value === undefined || value === false || ('default' in spec && value === spec.default);
    if (isUsual || aside.includes(name)) return [];
    return [value === true ? `--${name}` : `--${name}=${String(value)}`];
  });
  return ['npm run chaos --', ...words, ...(given['replay'] === undefined ? [`--seed=${seed}`] : [])].join(' ');
}
