/**
 * Tells when this process stood still for longer than `limitMs`: a computation that gave nothing else a turn, or a
 * machine that did not run it. Answers how to end the watch.
 */
export function watchStandstill(limitMs: number, onStandstill: (ms: number) => void): () => void {
  const everyMs = limitMs / 4;
  let last = performance.now();
  const timer = setInterval(() => {
    const stoodMs = performance.now() - last - everyMs;
    last = performance.now();
    if (stoodMs > limitMs) onStandstill(stoodMs);
  }, everyMs);
  timer.unref();
  return () => clearInterval(timer);
}
