import type { Random } from './random.ts';

/** Header values, one for each line; each character is one byte. */
export type Lines = readonly string[];

/** What the lines mean. `unreadable`: they are no HTTP, so nobody gets to see a key. */
export type KeyMeaning = { key: string } | 'key-missing' | 'key-malformed' | 'unreadable';

const letters = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789';
const tokenCharacters = `${letters}._:-`;
const visible = Array.from({ length: 0x7e - 0x20 }, (_, n) => String.fromCharCode(0x21 + n)).join('');
const anyByte = Array.from({ length: 256 }, (_, n) => String.fromCharCode(n)).join('');
const headerBytes = Array.from(anyByte)
  .filter((each) => !isForbiddenInHeaders(each))
  .join('');
const maxChars = 255;

/** docs/problems.md once more, character by character and without a regular expression: to judge the one in the code. */
export function meaningOf(lines: Lines): KeyMeaning {
  if (lines.some((line) => Array.from(line).some(isForbiddenInHeaders))) return 'unreadable';
  const [line] = lines;
  if (line === undefined) return 'key-missing';
  const text = trimBlanks(line);
  const key = lines.length > 1 ? undefined : text.startsWith('"') ? readQuoted(text) : readToken(text);
  return key === undefined || key.length === 0 || key.length > maxChars ? 'key-malformed' : { key };
}

export function isForbiddenInHeaders(byte: string): boolean {
  return (byte < ' ' && byte !== '\t') || byte === '\x7f';
}

/** Blanks around a value are no part of it. */
function trimBlanks(line: string): string {
  let [from, to] = [0, line.length];
  while (from < to && ' \t'.includes(line[from]!)) from += 1;
  while (to > from && ' \t'.includes(line[to - 1]!)) to -= 1;
  return line.slice(from, to);
}

function readToken(text: string): string | undefined {
  return Array.from(text).every((each) => tokenCharacters.includes(each)) ? text : undefined;
}

function readQuoted(text: string): string | undefined {
  let key = '';
  for (let at = 1; at < text.length; at += 1) {
    const each = text[at]!;
    if (each === '"') return at === text.length - 1 ? key : undefined;
    if (each === '\\') {
      at += 1;
      if (text[at] !== '"' && text[at] !== '\\') return undefined;
      key += text[at]!;
    } else if (visible.includes(each)) key += each;
    else return undefined;
  }
  return undefined;
}

/** A form in which the key may be sent: bare where that is possible, or quoted. */
export function writeKey(random: Random, key: string): string {
  const blank = random.chance(0.05) ? random.pick([' ', '\t', '  \t']) : '';
  const quoted = `"${key.replaceAll(/["\\]/g, String.raw`\$&`)}"`;
  return blank + (readToken(key) === undefined || random.chance(0.4) ? quoted : key) + blank;
}

/** Keys that are right, among them those that an SQL text or an array's text would stumble over. */
export function validKey(random: Random): string {
  const length = random.pick([1, 2, 3, 8, 16, 36, 36, 64, 254, 255]);
  if (random.chance(0.6)) return random.text(tokenCharacters, length);
  if (random.chance(0.7)) return random.text(visible, length);
  return random.pick(awkward) + random.text(tokenCharacters, random.pick([0, 1, 8]));
}

const awkward = [
  'NULL',
  'null',
  '{}',
  '{a,b}',
  '{"a","b"}',
  '\\',
  '\\\\',
  '"',
  '""',
  "'",
  "';DROP/**/TABLE/**/orders;--",
  '$1',
  '$$',
  '%s%n',
  '\\x00',
  '\\u0000',
  '__proto__',
  'constructor',
  'toString',
  '../../etc/passwd',
  '<script>',
  ',',
  '(),',
];

/** Lines that are mostly no key at all, and some that are. */
export function nastyKeyLines(random: Random): Lines {
  const key = validKey(random);
  switch (random.int(10)) {
    case 0:
      return [random.pick(['', ' ', '\t', '""', '"', '"\\"', '"\\', '\\', "''", '"a"b', '"a""b"'])];
    case 1:
      return [random.text(tokenCharacters, random.pick([256, 257, 300, 512, 1_000, 8_000]))];
    case 2:
      return [`"${random.text(visible.replaceAll(/["\\]/g, ''), random.pick([256, 257, 508, 509, 510, 511, 4_000]))}"`];
    case 3:
      return [`"${random.pick(['\\"', '\\\\']).repeat(random.pick([254, 255, 256, 257, 400]))}"`];
    case 4:
      return [
        random.pick([`"a", "b"`, 'a, b', 'a,b', `("a" "b")`, `"a";p=1`, 'a;p', '?1', ':YWJj:', '@1659578233', '%"a"']),
      ];
    case 5:
      return [writeKey(random, key), random.pick([writeKey(random, key), writeKey(random, validKey(random)), ''])];
    case 6:
      return [];
    case 7:
      return [withOneByte(random, random.chance(0.5) ? `"${random.text(letters, 20)}"` : random.text(letters, 20))];
    case 8:
      return [random.text(headerBytes, 1 + random.int(300))];
    default:
      return [
        Buffer.from(random.pick(['ключ', '鍵', '"🔑"', 'é', '\u202e', 'a\u0000b', '\ufeffa', 'ａ'])).toString('latin1'),
      ];
  }
}

function withOneByte(random: Random, text: string): string {
  const at = random.int(text.length);
  return text.slice(0, at) + random.text(anyByte, 1) + text.slice(at + 1);
}
