import type { Send } from './plan.ts';

/** First in, first out, linked through the requests themselves: no array to grow, no garbage. */
export interface Queue {
  size: number;
  first: Send | undefined;
  push(send: Send): void;
  shift(): Send | undefined;
  clear(): void;
}

export function createQueue(): Queue {
  let last: Send | undefined;
  const queue: Queue = {
    size: 0,
    first: undefined,
    push(send) {
      if (last) last.next = send;
      else queue.first = send;
      last = send;
      queue.size++;
    },
    shift() {
      const send = queue.first;
      if (!send) return undefined;
      queue.first = send.next;
      if (!queue.first) last = undefined;
      send.next = undefined;
      queue.size--;
      return send;
    },
    clear() {
      queue.first = last = undefined;
      queue.size = 0;
    },
  };
  return queue;
}
