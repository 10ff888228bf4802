import type { Random } from './random.ts';

export interface Body {
  /** Each character is one byte. */
  bytes: string;
  /** What it asks for, as one text for the same thing; or how it has to be refused. */
  meaning: { command: string } | 'body-malformed' | 'request-invalid';
}

export interface Create {
  account: number;
  amount: number;
}

export const bodyLimitBytes = 16_384;
const maxAmount = 1_000_000_000_000;
export const statuses = ['paid', 'shipped', 'delivered', 'cancelled'] as const;

export function validCreate(random: Random): Create {
  return {
    account: random.pick([1, 7, Number.MAX_SAFE_INTEGER, 1 + random.int(1_000_000), 10 * (1 + random.int(1_000))]),
    amount: random.pick([1, maxAmount, 1 + random.int(100_000), 100 * (1 + random.int(1_000))]),
  };
}

/** One command, in one of the many texts that say it. */
export function writeCreate(random: Random, { account, amount }: Create): Body {
  const space = (): string => (random.chance(0.2) ? random.text(' \t\r\n', 1 + random.int(3)) : '');
  const member = (name: string, value: string): string =>
    `${space()}"${random.chance(0.1) ? escaped(name) : name}"${space()}:${space()}${value}${space()}`;
  const members = [
    // Of two members with one name the last one counts.
    ...(random.chance(0.05) ? [member('account_id', random.pick(['null', '"x"', '[]', '-1', '1e400']))] : []),
    member('account_id', numberText(random, account)),
    member('amount_cents', numberText(random, amount)),
  ];
  if (random.chance(0.3)) members.unshift(members.pop()!);
  const text = `${space()}{${members.join(',')}}${space()}`;
  const padded = random.chance(0.01) ? text.padEnd(bodyLimitBytes) : text;
  return { bytes: padded, meaning: { command: commandOf({ account, amount }) } };
}

export function commandOf({ account, amount }: Create): string {
  return `${account} ${amount}`;
}

function numberText(random: Random, value: number): string {
  const text = String(value);
  if (random.chance(0.8)) return text;
  return random.pick([`${text}.0`, `${text}e0`, `${text}E+0`, `${text}0e-1`, `${text}.000`]);
}

function escaped(name: string): string {
  return name.replaceAll(/[aeiou]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** One in the place of another, in a body that would be right otherwise. */
const wrongNumbers = [
  ['0', '-0', '-1', '0.5', '1.5', '1e400', '-1e400', '1e-400', '1e21', '9007199254740992', '9007199254740993'],
  ['18446744073709551616', '9'.repeat(400), '1e999999999', '"1"', '"1e3"', 'null', 'true', '[1]', '{}', '[[]]'],
  ['"\\ud800"', '"\\u0000"', '{"valueOf":1}', '""', '"NaN"'],
].flat();
const moreMembers = [
  ['"more":1', '"__proto__":{"account_id":1}', '"__proto__":null', '"constructor":{"prototype":{}}', '"":0'],
  ['"toString":1', '"hasOwnProperty":1', '"\\ud800":1', '"\\u0000":1', '"account_id ":1', '"ACCOUNT_ID":1'],
  ['"tenant":"tenant-0"', '"order_id":"x"', '"\xff":1', '"\xc0\x80":1', '"\xed\xa0\x80":1', '"a\xe2\x82":1'],
].flat();
const notAnObject = [
  ['null', 'true', '0', '-0', '1e400', '""', '"x"', '[]', '[{}]', '{}', '[null]', '"\\ud800\\udc00"', '"\\udc00"'],
  ['{"account_id":1}', '{"amount_cents":1}', '{"__proto__":{"account_id":1,"amount_cents":1}}', '"\xff\xfe"'],
].flat();
const notJson = [
  ['', ' ', '{', '}', '[', ']', '"', "{'account_id':1}", 'undefined', 'NaN', 'Infinity', '-', '+1', '01', '.5'],
  ['1.', '0x10', '1e', '{"a"}', '{"a":}', '{,}', '[1,]', '{"a":1,}', '"\t"', '"\\x"', '"\\u12"', '"\0"', '\0'],
  [
    '{}{}',
    '{} x',
    '/**/{}',
    '\xef\xbb\xbf{}',
    '\xff\xfe{\0}\0',
    'tru',
    'nul',
    '--1',
    '\x1e{}',
    '\xa0{}',
    'account_id=1',
  ],
].flat();

export function nastyBody(random: Random): Body {
  const { account, amount } = validCreate(random);
  const invalid = (bytes: string): Body => ({ bytes, meaning: 'request-invalid' });
  const malformed = (bytes: string): Body => ({ bytes, meaning: 'body-malformed' });
  switch (random.int(7)) {
    case 0:
      return invalid(`{"account_id":${random.pick(wrongNumbers)},"amount_cents":${amount}}`);
    case 1:
      return invalid(`{"account_id":${account},"amount_cents":${random.pick([...wrongNumbers, '1000000000001'])}}`);
    case 2:
      return invalid(`{"account_id":${account},"amount_cents":${amount},${random.pick(moreMembers)}}`);
    case 3:
      return invalid(random.pick(notAnObject));
    case 4:
      return malformed(random.pick(notJson));
    case 5:
      return random.chance(0.5) ? invalid(nested(random, true)) : malformed(nested(random, false));
    default: {
      const whole = `{"account_id":${account},"amount_cents":${amount}}`;
      return malformed(whole.slice(0, random.int(whole.length)));
    }
  }
}

function nested(random: Random, closed: boolean): string {
  const [open, close, bytes] = random.pick([
    ['[', ']', 2],
    ['{"a":', '}', 6],
    ['[{"account_id":', '}]', 17],
  ] as const);
  const depth = Math.min(random.pick([10, 100, 1_000, 10_000]), Math.floor((bodyLimitBytes - 10) / bytes));
  return `${open.repeat(depth)}1${closed ? close.repeat(depth) : ''}`;
}

export function writeStatus(random: Random, status: string): string {
  return random.pick([
    `{"status":"${status}"}`,
    ` {"\\u0073tatus" : "${status}" }\n`,
    `{"status":1,"status":"${status}"}`,
  ]);
}

const wrongStatuses = [
  '"created"',
  '"PAID"',
  '"paid "',
  '""',
  'null',
  '1',
  '["paid"]',
  '{"a":1}',
  '"\\u0000"',
  '"\xff"',
];
const wrongBodies = [
  '{"status":"paid","more":1}',
  '{"status":"paid","__proto__":{}}',
  '{}',
  '[]',
  '"paid"',
  '{"Status":"paid"}',
];

export function nastyStatusBody(random: Random): string {
  return random.pick([...wrongStatuses.map((value) => `{"status":${value}}`), ...wrongBodies]);
}
