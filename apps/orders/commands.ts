import { Ajv, type JSONSchemaType, type ValidateFunction } from 'ajv';

/** What can be asked for, already validated. The tenant is a part of it: nobody changes another's order. */
export interface Create {
  tenant: string;
  account_id: number;
  amount_cents: number;
}

export interface SetStatus {
  tenant: string;
  order_id: string;
  status: string;
}

/** JSON has no integers beyond this one that survive a reader with doubles. */
const maxInteger = Number.MAX_SAFE_INTEGER;

/** openapi.yaml holds the same two; a test compares them. */
export const createSchema: JSONSchemaType<Omit<Create, 'tenant'>> = {
  type: 'object',
  additionalProperties: false,
  required: ['account_id', 'amount_cents'],
  properties: {
    account_id: { type: 'integer', minimum: 1, maximum: maxInteger },
    amount_cents: { type: 'integer', minimum: 1, maximum: 1_000_000_000_000 },
  },
};

export const setStatusSchema: JSONSchemaType<Pick<SetStatus, 'status'>> = {
  type: 'object',
  additionalProperties: false,
  required: ['status'],
  properties: { status: { type: 'string', enum: ['paid', 'shipped', 'delivered', 'cancelled'] } },
};

/** Nothing is coerced, filled in or removed: what is not right is refused. */
const ajv = new Ajv({ strict: true });
export const validateCreate = ajv.compile(createSchema);
export const validateSetStatus = ajv.compile(setStatusSchema);

/** What is wrong, without the values: they are the client's, and this text ends in logs. */
export function whatIsWrong({ errors }: ValidateFunction): string {
  return ajv.errorsText(errors, { dataVar: 'request' });
}

export function isOrderId(text: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text);
}
