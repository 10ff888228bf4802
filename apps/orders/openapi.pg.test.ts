import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { parse } from 'yaml';
import { testDatabase } from '@twiceproof/infra/testing';
import { createSchema, setStatusSchema } from './commands.ts';
import { startOrders } from './program-under-test.ts';

interface Operation {
  operationId: string;
  responses: Record<string, object>;
}
interface Document {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, object> };
}

const document = parse(readFileSync(join(import.meta.dirname, 'openapi.yaml'), 'utf8')) as Document;
const ajv = new Ajv2020({ strict: true, formats: { uuid: /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/ } });
ajv.addVocabulary(['openapi', 'info', 'security', 'paths', 'components']);
ajv.addSchema({ $id: 'document', ...document });

const { url } = await testDatabase();
const program = await startOrders(url);
after(async () => program.stop());

test('the requests of the document are those of the code', () => {
  const { Create, SetStatus } = document.components.schemas;
  assert.deepEqual(Create, createSchema);
  assert.deepEqual(SetStatus, setStatusSchema);
});

/** Statuses by operation that the program has shown. */
const shown: Record<string, Set<string>> = {};

/** What `$ref` leads to. */
function resolved(part: unknown): Record<string, unknown> {
  const reference = (part as { $ref?: string }).$ref;
  if (!reference) return part as Record<string, unknown>;
  const steps = reference.replace('#/', '').split('/');
  return steps.reduce(
    (at, step) => at[step] as Record<string, unknown>,
    document as unknown as Record<string, unknown>,
  );
}

function mustMatch(schema: unknown, value: unknown, what: string): void {
  const text = JSON.stringify(schema).replaceAll('"#/', '"document#/');
  const validate = ajv.compile(JSON.parse(text) as object);
  assert.ok(validate(value), `${what}: ${ajv.errorsText(validate.errors)}`);
}

/** Asks the program, and holds the answer against the document. */
async function ask(template: string, method: string, id: string, init: RequestInit): Promise<Record<string, unknown>> {
  const operation = document.paths[template]?.[method];
  assert.ok(operation, `${method} ${template} is not in the document`);
  const response = await fetch(program.http + template.replace('{id}', id), { method: method.toUpperCase(), ...init });
  const what = `${operation.operationId} ${response.status}`;
  const described = operation.responses[response.status];
  assert.ok(described, `${what} is not in the document`);
  (shown[operation.operationId] ??= new Set()).add(String(response.status));
  const { headers = {}, content } = resolved(described) as {
    headers?: Record<string, unknown>;
    content: Record<string, { schema: unknown }>;
  };
  for (const [name, header] of Object.entries(headers)) {
    const { schema } = resolved(header) as { schema: object };
    mustMatch(schema, response.headers.get(name), `${what} ${name}`);
  }
  const type = response.headers.get('content-type')?.split(';')[0] ?? '';
  assert.ok(content[type], `${what} has the type ${type}`);
  const body = (await response.json()) as Record<string, unknown>;
  mustMatch(content[type].schema, body, what);
  return body;
}

function keyed(key: string, body: unknown, more: Record<string, string> = {}): RequestInit {
  const headers = { authorization: 'Bearer t', 'idempotency-key': key, 'content-type': 'application/json', ...more };
  return { headers, body: typeof body === 'string' ? body : JSON.stringify(body) };
}

test('the program answers as the document says, with every status that can be had from outside', async () => {
  const order = { account_id: 1, amount_cents: 2 };
  const { order_id } = await ask('/orders', 'post', '', keyed('a', order));
  const id = String(order_id);
  const status = '/orders/{id}/status';
  for (const [template, valid] of [
    ['/orders', order],
    [status, { status: 'paid' }],
  ] as const) {
    await ask(template, 'post', id, keyed('a', valid));
    await ask(
      template,
      'post',
      id,
      keyed('a', template === status ? { status: 'shipped' } : { ...order, account_id: 3 }),
    );
    await ask(template, 'post', id, keyed('"', valid));
    await ask(template, 'post', id, keyed('b', valid, { authorization: '' }));
    await ask(template, 'post', id, keyed('b', ' '.repeat(20_000)));
    await ask(template, 'post', id, keyed('b', valid, { 'content-type': 'text/plain' }));
    await ask(template, 'post', id, keyed('b', {}));
  }
  const unknown = '00000000-0000-7000-8000-000000000000';
  await ask(status, 'post', unknown, keyed('c', { status: 'paid' }));
  const headers = { authorization: 'Bearer t' };
  const read = await ask('/orders/{id}', 'get', id, { headers });
  assert.deepEqual(read, { order_id, ...order, status: 'paid', version: 2 });
  await ask('/orders/{id}', 'get', unknown, { headers });
  await ask('/orders/{id}', 'get', id, {});

  for (const operations of Object.values(document.paths)) {
    for (const { operationId, responses } of Object.values(operations)) {
      const fromOutside = Object.keys(responses).filter((code) => !code.startsWith('5'));
      assert.deepEqual([...(shown[operationId] ?? [])].toSorted(), fromOutside.toSorted(), operationId);
    }
  }
});
