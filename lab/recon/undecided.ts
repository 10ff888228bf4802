/** Why no verdict can be given: what would have to be known could not be read. It is a failure, and never "clean". */
export class Undecided extends Error {
  override name = 'Undecided';
}

/** Whatever goes wrong while `what` is read leaves the judge without it. */
export async function orUndecided<T>(what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (cause instanceof Undecided) throw cause;
    throw new Undecided(`${what}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
}
