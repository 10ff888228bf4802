/** So many may work at a time. Whoever has to wait for something else gives its slot back meanwhile. */
export interface Slots {
  take(): Promise<void>;
  giveBack(): void;
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

  return { take, giveBack };
}
