/** No wait of the lab is for ever: what did not come in time is told together with what did. */
export const defaultTimeoutMs = 10_000;

export async function within<T>(timeoutMs: number, promise: Promise<T>, late: () => string): Promise<T> {
  const { promise: tooLate, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`within ${timeoutMs / 1000} s: ${late()}`)), timeoutMs);
  try {
    return await Promise.race([promise, tooLate]);
  } finally {
    clearTimeout(timer);
  }
}
