/**
 * Numbers with commas between them, as the server has written them, used up from the front. A million of them are some
 * megabytes of text, and would be several times that as an array of texts.
 */
export interface Numbers {
  /** So many, or fewer if there are no more. They stay. */
  first(count: number): string[];
  /** Those that `first` has told, or some of them from the front. */
  drop(told: readonly string[]): void;
  isEmpty(): boolean;
}

export function numbersIn(written: unknown): Numbers {
  const text = typeof written === 'string' ? written : '';
  let at = 0;
  return {
    first: (count) => {
      let end = at;
      for (let n = 0; n < count && end < text.length; n += 1) {
        const comma = text.indexOf(',', end);
        end = (comma === -1 ? text.length : comma) + 1;
      }
      return end === at ? [] : text.slice(at, end - 1).split(',');
    },
    drop: (told) => {
      for (const { length } of told) at += length + 1;
    },
    isEmpty: () => at >= text.length,
  };
}
