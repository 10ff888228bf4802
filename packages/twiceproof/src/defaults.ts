import { TwiceproofError } from './errors.ts';

/**
 * Options over their defaults. One that is undefined is as good as not given; a number must be one. In plain JavaScript
 * nobody else looks, and a retention that is no number would compare as false, and forget nothing or everything.
 */
export function withDefaults<D extends object, O extends object>(defaults: D, options: O): D & O {
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  for (const [name, value] of given) {
    const isNumber = typeof (defaults as Record<string, unknown>)[name] === 'number';
    if (isNumber && !(typeof value === 'number' && value >= 0 && value !== Infinity)) {
      throw new TwiceproofError('TP_OPTION', `${name} is a number from 0 on, not ${String(value)}`);
    }
  }
  return { ...defaults, ...Object.fromEntries(given) } as D & O;
}

/** For numbers of things: with none of them there would be nothing to do, for ever and without a word. */
export function requireCounts(counts: Readonly<Record<string, number>>): void {
  for (const [name, value] of Object.entries(counts)) {
    if (Number.isInteger(value) && value >= 1) continue;
    throw new TwiceproofError('TP_OPTION', `${name} is a whole number from 1 on, not ${String(value)}`);
  }
}
