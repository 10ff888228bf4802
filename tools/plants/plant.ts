/** A planted bug: a patch, and the tests that must notice it. */
export interface Plant {
  /** The file's name without `.patch`, for example `03-inbox-without-consumer`. */
  name: string;
  /** What the bug is, in a sentence. */
  what: string;
  /** The test file that must turn red, from the root of the repository. */
  test: string;
  /**
   * The tests in it that must fail, and the only ones that may: each an exact name, a name with its
   * suites (`suite > test`), or a regular expression between slashes.
   */
  fails: readonly string[];
  patch: string;
}

/** Reads lab/plants/NN-name.patch: lines of prose, `Test:` and `Fails:`, and then a unified diff. */
export function parsePlant(name: string, text: string): Plant | { problems: string[] } {
  const start = text.search(/^(diff --git |--- )/m);
  const header = (start < 0 ? text : text.slice(0, start)).split('\n').map((line) => line.trim());
  const valuesOf = (key: string) =>
    header.filter((line) => line.startsWith(key)).map((line) => line.slice(key.length).trim());
  const [test = '', ...more] = valuesOf('Test:');
  const fails = valuesOf('Fails:').filter((value) => value !== '');
  const what = header.filter((line) => !/^(Test|Fails):/.test(line) && line !== '').join(' ');
  const patch = start < 0 ? '' : text.slice(start);
  const problems = [
    ...(test === '' || more.length > 0 ? ['needs one line "Test: path/of/file.test.ts"'] : []),
    ...(fails.length === 0 ? ['needs a line "Fails: name of the test"'] : []),
    ...(what === '' ? ['needs a sentence that says what the bug is'] : []),
    ...(patch === '' ? ['has no diff'] : []),
    // A bug in the test would prove nothing about the test.
    ...(/^\+\+\+ .*\.test\.ts\s*$/m.test(patch) ? ['changes a test, not the code'] : []),
    ...fails.filter(isBrokenPattern).map((pattern) => `"Fails: ${pattern}" is no regular expression`),
  ];
  return problems.length > 0 ? { problems } : { name, what, test, fails, patch };
}

function isBrokenPattern(entry: string): boolean {
  try {
    patternOf(entry);
    return false;
  } catch {
    return true;
  }
}

function patternOf(entry: string): RegExp | undefined {
  const source = /^\/(.+)\/$/.exec(entry)?.[1];
  return source === undefined ? undefined : new RegExp(source);
}

/** Whether a `Fails:` entry names the test with this path of names: `['suite', 'test']`. */
export function namesTest(entry: string, path: readonly string[]): boolean {
  const full = path.join(' > ');
  return patternOf(entry)?.test(full) ?? (entry === full || entry === path.at(-1));
}

/** `3`, `03`, `03-name` and `name` all mean the same plant. */
export function isCalled(plant: string, asked: string): boolean {
  const [number = '', ...words] = plant.split('-');
  return plant === asked || words.join('-') === asked || (/^\d+$/.test(asked) && Number(number) === Number(asked));
}
