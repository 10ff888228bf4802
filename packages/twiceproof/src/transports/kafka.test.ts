import assert from 'node:assert/strict';
import { test } from 'node:test';
import { kafkaTransport } from './kafka.ts';

test('times and sizes that are none are refused: a timer without end would end at once', () => {
  for (const publishDeadlineMs of [0, -1, 2 ** 31, Infinity, Number.NaN]) {
    assert.throws(() => kafkaTransport({ bootstrap: 'localhost:1', publishDeadlineMs }), { code: 'TP_OPTION' });
  }
  assert.throws(() => kafkaTransport({ bootstrap: 'localhost:1', maxRecordBytes: Infinity }), { code: 'TP_OPTION' });
});

test('no broker is refused, and not looked for on this machine', () => {
  for (const bootstrap of [undefined, '', ' , ', []]) {
    assert.throws(() => kafkaTransport({ bootstrap } as never), { code: 'TP_OPTION', message: /names no broker/ });
  }
});
