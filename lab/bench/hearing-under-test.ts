import type { Output } from '@twiceproof/program';

/** An output that keeps what a person would read. */
export function hearing(): { said: string[]; output: Output } {
  const said: string[] = [];
  const keep = (text: string): void => {
    said.push(text);
  };
  return { said, output: { json: false, say: keep, progress: keep, emit() {}, ready() {} } };
}
