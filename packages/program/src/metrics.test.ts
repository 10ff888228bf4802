import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createMetrics } from './metrics.ts';

test('each kind of metric as Prometheus reads it', () => {
  const metrics = createMetrics();
  metrics.counter('asked_total', 'Asked.', ['door', 'outcome'])('http', 'first');
  metrics.total('sent_total', 'Sent.')(3);
  metrics.gauge('waiting', 'Waiting.', () => 2);
  const size = metrics.histogram('size', 'Sizes.', [], [1, 10]);
  for (const value of [1, 2, 11]) size(value);
  metrics.histogram('took_seconds', 'Time.', ['door'], [1])(0.5, 'http');
  assert.equal(
    metrics.text(),
    `# HELP asked_total Asked.
# TYPE asked_total counter
asked_total{door="http",outcome="first"} 1
# HELP sent_total Sent.
# TYPE sent_total counter
sent_total 3
# HELP waiting Waiting.
# TYPE waiting gauge
waiting 2
# HELP size Sizes.
# TYPE size histogram
size_bucket{le="1"} 1
size_bucket{le="10"} 2
size_bucket{le="+Inf"} 3
size_sum 14
size_count 3
# HELP took_seconds Time.
# TYPE took_seconds histogram
took_seconds_bucket{door="http",le="1"} 1
took_seconds_bucket{door="http",le="+Inf"} 1
took_seconds_sum{door="http"} 0.5
took_seconds_count{door="http"} 1
`,
  );
});

test('what nobody knows at the moment has no value, instead of a wrong one', () => {
  const metrics = createMetrics();
  metrics.gauge('waiting', 'Waiting.', () => undefined);
  assert.equal(metrics.text(), '# HELP waiting Waiting.\n# TYPE waiting gauge\n');
});
