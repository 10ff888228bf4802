import type { Tx } from '../tx.ts';

/**
 * A schema as text, in an order that does not depend on how it came about: what `sql/schema.sql` holds and a
 * test compares. Not a dump to restore from: for reading, and for seeing in a review what a migration changes.
 */
export async function describeSchema(tx: Tx, schema: string): Promise<string> {
  const { rows } = await tx.query(description, [schema]);
  return `${rows.map((row) => String(row['text'])).join('\n\n')}\n`;
}

const description = `
WITH relations AS (
  SELECT c.oid, c.relname, c.relkind, c.reloptions, pg_get_expr(c.relpartbound, c.oid) AS bound, pg_get_partkeydef(c.oid) AS key
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v')
), columns AS (
  SELECT a.attrelid, string_agg(concat('  ', a.attname, ' ', format_type(a.atttypid, a.atttypmod),
      CASE WHEN a.attnotnull THEN ' NOT NULL' END,
      CASE WHEN a.attidentity = 'a' THEN ' GENERATED ALWAYS AS IDENTITY' END,
      ' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid),
      CASE WHEN a.attstorage = 'e' THEN ' STORAGE EXTERNAL' END,
      CASE WHEN a.attstattarget >= 0 THEN ' STATISTICS ' || a.attstattarget END), E'\\n' ORDER BY a.attnum) AS text
  FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
  WHERE a.attnum > 0 AND NOT a.attisdropped GROUP BY a.attrelid
), rules AS (
  SELECT conrelid, string_agg(concat('  ', conname, ' ', pg_get_constraintdef(oid)), E'\\n' ORDER BY conname) AS text
  FROM pg_constraint WHERE contype <> 'n' GROUP BY conrelid
), indexes AS (
  SELECT indrelid, string_agg(pg_get_indexdef(indexrelid), E'\\n' ORDER BY indexrelid::regclass::text) AS text
  FROM pg_index GROUP BY indrelid
)
SELECT replace(CASE WHEN relkind = 'v' THEN concat('VIEW ', relname, E'\\n', pg_get_viewdef(r.oid))
  ELSE concat_ws(E'\\n', concat('TABLE ', relname, ' PARTITION BY ' || key, ' PARTITION ' || bound, ' WITH ' || reloptions::text),
    columns.text, rules.text, indexes.text) END, $1 || '.', ':schema.') AS text
FROM relations r
LEFT JOIN columns ON columns.attrelid = r.oid LEFT JOIN rules ON rules.conrelid = r.oid LEFT JOIN indexes ON indexes.indrelid = r.oid
ORDER BY relname`;
