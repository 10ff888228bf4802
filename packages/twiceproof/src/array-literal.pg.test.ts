import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import fc from 'fast-check';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { arrayLiteral } from './array-literal.ts';

const { url } = await testDatabase();
const client = new pg.Client(url);
await client.connect();
after(async () => client.end());

/** What the server makes of it, back as a list. */
async function read(type: string, values: readonly unknown[]): Promise<unknown[]> {
  const { rows } = await client.query<{ list: unknown[] }>(`SELECT $1::${type}[] AS list`, [arrayLiteral(values)]);
  return rows[0]!.list;
}

test('the server reads what was meant, whatever the texts and bytes are', async () => {
  const text = fc.oneof(fc.string({ unit: 'grapheme' }), fc.constantFrom('', 'NULL', '"', '\\', '{}', ' ', ','));
  const texts = fc.array(fc.option(text.filter((each) => !each.includes('\0'))), { minLength: 1 });
  const bytes = fc.array(
    fc.uint8Array().map((each) => Buffer.from(each)),
    { minLength: 1 },
  );
  await fc.assert(
    fc.asyncProperty(texts, bytes, async (someTexts, someBytes) => {
      const expected = someTexts.every((each) => each === null) ? [] : someTexts;
      assert.deepEqual(await read('text', someTexts), expected);
      assert.deepEqual(await read('bytea', someBytes), someBytes);
    }),
  );
  assert.deepEqual(await read('float8', [1, -0.5, Number.NaN, 1e300, null]), [1, -0.5, Number.NaN, 1e300, null]);
  assert.deepEqual(await read('bool', [true, false]), [true, false], 'left to the client');
  const { rows } = await client.query('SELECT * FROM unnest($1::int[], $2::text[])', [
    [1, 2],
    arrayLiteral([null, null]),
  ]);
  assert.equal(rows.length, 2);
});
