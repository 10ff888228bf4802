import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isServerError } from './connection.ts';

test('an error is of the server when it bears an SQLSTATE, but for those that end the connection', () => {
  for (const code of ['23505', '40001', 'XX000', 'P0001', '0A000']) assert.equal(isServerError({ code }), true, code);
  const ofTheConnection = ['EPIPE', 'ECONNRESET', '57P01', '57P03', '08006', undefined, 'TP_OPTION'];
  for (const code of ofTheConnection) assert.equal(isServerError({ code }), false, code);
});
