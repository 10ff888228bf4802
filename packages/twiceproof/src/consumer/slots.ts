/** So many may work at a time. Whoever has to wait for something else gives its slot back meanwhile. */
export interface Slots {
  take(): Promise<void>;
  giveBack(): void;
  /** For a slot that one has: all of this, each in a slot of its own. Throws what one of them threw, when all have ended. */
  exchange(tasks: readonly (() => Promise<void>)[]): Promise<void>;
}

export function createSlots(count: number): Slots {
  let free = count;
  const waiting: (() => void)[] = [];

  async function take(): Promise<void> {
    if (free > 0) {
      free -= 1;
      return;
    }
    await new Promise<void>((resolve) => {
      waiting.push(resolve);
    });
  }

  function giveBack(): void {
    const next = waiting.shift();
    if (next) next();
    else free += 1;
  }

  async function exchange(tasks: readonly (() => Promise<void>)[]): Promise<void> {
    giveBack();
    const ended = await Promise.allSettled(
      tasks.map(async (task) => {
        await take();
        await task().finally(giveBack);
      }),
    );
    await take();
    const failed = ended.find((each) => each.status === 'rejected');
    if (failed) throw failed.reason;
  }

  return { take, giveBack, exchange };
}
