import assert from 'node:assert/strict';
import { test } from 'node:test';
import { murmur2, partitionFor } from './partitioner.ts';

/**
 * [key in base64, hash, partition of 3, of 12, of 1000], from kafka-clients 4.1.1 itself: a Java file
 * that prints, for each key, `Utils.murmur2(key)` and `Utils.toPositive(hash) % n` of
 * `org.apache.kafka.common.utils.Utils`, run by `java -cp kafka-clients-4.1.1.jar:slf4j-api.jar Vectors.java`.
 * Keys: empty, each length modulo 4, UUID, umlauts, CJK, emoji, NUL, all 256 bytes, high bytes, 500
 * bytes, and 24 of `new Random(7)`.
 */
const vectors: [string, number, number, number, number][] = [
  ['', 275646681, 0, 9, 681],
  ['YQ==', -1563381124, 1, 4, 524],
  ['YWI=', 316155434, 2, 2, 434],
  ['YWJj', 479470107, 0, 3, 107],
  ['YWJjZA==', -1323649548, 2, 8, 100],
  ['YWJjZGU=', 461995741, 1, 1, 741],
  ['b3JkZXItMQ==', 1221710326, 1, 10, 326],
  ['b3JkZXItMg==', -1055499005, 0, 3, 643],
  ['MA==', 971027396, 2, 8, 396],
  ['MjE=', -973932308, 0, 0, 340],
  ['Zm9vYmFy', -790332482, 0, 6, 166],
  ['YS1saXR0bGUtYml0LWxvbmctc3RyaW5n', -985981536, 2, 8, 112],
  ['YS1saXR0bGUtYml0LWxvbmdlci1zdHJpbmc=', -1486304829, 2, 11, 819],
  ['bGtqaDIzNGxoOWZpdWg5MHkyM29pdWhzYWZ1amhhZG9mMjI5cGhyOWgxOWg4OWg4', -58897971, 2, 5, 677],
  ['MDE5MmYzYTQtN2IxYy03ZGVmLTgxMjMtNDU2Nzg5YWJjZGVm', 1568943619, 1, 7, 619],
  ['w6TDtsO8w58=', -1509178215, 2, 5, 433],
  ['5pel5pys6Kqe', 1431860170, 1, 10, 170],
  ['8J+agCByb2NrZXQ=', -1710445744, 1, 4, 904],
  ['AA==', 375494588, 2, 8, 588],
  ['AAAAAA==', 850957120, 1, 4, 120],
  ['f8KA37/goIDvv78=', -868914240, 2, 8, 408],
  [
    'AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0BBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWltcXV5fYGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn+AgYKDhIWGh4iJiouMjY6PkJGSk5SVlpeYmZqbnJ2en6ChoqOkpaanqKmqq6ytrq+wsbKztLW2t7i5uru8vb6/wMHCw8TFxsfIycrLzM3Oz9DR0tPU1dbX2Nna29zd3t/g4eLj5OXm5+jp6uvs7e7v8PHy8/T19vf4+fr7/P3+/w==',
    -1948347274,
    1,
    10,
    374,
  ],
  ['/w==', -311467685, 0, 3, 963],
  ['gP8=', -80095470, 2, 2, 178],
  ['////', 1548199422, 0, 6, 422],
  ['/////4A=', -1702406959, 1, 1, 689],
  [
    'eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg=',
    -39043927,
    1,
    1,
    721,
  ],
  ['GDR3o1qUyb85C3cCCdMqWV1KmH1B9LPlkkcavgUZS7VdyrORABYXWqFH4fPpjug=', -1260333191, 0, 9, 457],
  ['v+eT2fztUrIC400V5cTKrxY=', 1159654253, 2, 5, 253],
  ['ZeJApOlEsw==', -884803346, 0, 6, 302],
  ['txz4vfyXxpZpMFiyLt0UefGVMpfhyCFBpqRtmTZM9GGzF8mf7mFMxadLAp+PgU442TmV', 474593811, 0, 3, 811],
  ['hHiR112o3d3EZDSv61B4GuBDZPmz', 1941571868, 2, 8, 868],
  ['C6PIhbZsSZgA2mQaIqQg7pmJ', -919075280, 0, 0, 368],
  ['ycOPv3ri', -1510886240, 0, 0, 408],
  ['tRRNxpgxwtXp+MfcscOidtoDxcU0fdhyiyM=', -1551833956, 1, 4, 692],
  ['uw/19BEaAhyaAWipgRgcmjJPCuwJOVoyEwGOveIytptGPf/pTHO6nJlgyAtqIUzHsGf5ApWwGAqY66g=', 1410641006, 2, 2, 6],
  ['mwH1Up68IO+s1NlaYWZZWqxeUFzWP833RFKhftryznFB', 1786098736, 1, 4, 736],
  ['guHvMHIcjVf87oDu/QetQWVTVYW3YxVXgoJmJR3ppZIqCFdBODQMaX+pgv3y4eAx7g==', -566704029, 2, 11, 619],
  ['7ecL/rfG6NKYj0nYZ7gzHJYxDlbPIBlN9RzW6uwJWLnXLstTQY4TSiPdhNxD', -1226422112, 0, 0, 536],
  ['ZCTnvTOi4GNuvbvB1Yb51tbJPiIKXQEQJhq6XJdvfQeyu8Z5h4xi1DMoGcxDj9joAbJIR+r6jrv+QeG+WMmT', -237439127, 0, 9, 521],
  ['c20AiWOn8vDAC+N1QwipqUkqWOfMV5HHWCGPa4oM1W2deP9ye/kL', -1812008447, 0, 9, 201],
  ['kcH1hA9/jcAmYhmfDjOvF5xmiUZQJA==', 1694650668, 0, 0, 668],
  ['uc/fFNOAYgEI1rvStUjAbnOHZoR7Clz5+VkI1e9NjHxGjMAIZuHEZmMNj0m4Yg==', -1562949139, 1, 1, 509],
  ['rChvMqo2VapoTg+FB4CjWpuR5542TQOGgFXWacA6zA==', 359978317, 1, 1, 317],
  ['mlscbv5a7tNv541+Nj029PffRvDyQg3Yrw/1XKaviRGizpg8UWpiojWuO+fvRwzRBJvOFQhIMhpYvDSVgJrPOQ==', -1928444570, 0, 6, 78],
  ['VItie9OTpOT0VzDDHNde0VBLecrKKBc2zpjcx5rgfinPG6c0CmBRy2awRi7k+A==', -1121606914, 1, 10, 734],
  ['lQWLKx27feLxRn/03U5tZ1wncwg=', -1551065838, 2, 2, 810],
  ['ZIltjI/dxAlO2NjGqlzRZDI70zNvA7VikZ/uktImLWqH3pqDBsw4ww4Yv3roRdp96pEsvMjq8k0zhA==', -922919813, 0, 3, 835],
  ['nlOQba1EgC7zWUUv/p5kIUuX5mkA/3BYEQvIzEumKA==', 1288738335, 0, 3, 335],
  ['difDup6NGCdGsqZUrd83foFJ117AaNhPHuzZld1oqXHmhIjwtA==', 1991933607, 0, 3, 607],
  ['B6idNY35lmUVZQo3JBlbmRm39aaXnCyuXShNjN0atVx6xg==', -1328564079, 2, 5, 569],
];

test('the partition of a key is the one that the Java client chooses', () => {
  for (const [base64, hash, of3, of12, of1000] of vectors) {
    const key = Buffer.from(base64, 'base64');
    assert.equal(murmur2(key), hash, base64);
    assert.deepEqual(
      [partitionFor(key, 3), partitionFor(key, 12), partitionFor(key, 1000)],
      [of3, of12, of1000],
      base64,
    );
  }
});

test('a key that is a slice of a larger buffer hashes as its own bytes', () => {
  const whole = Buffer.from('xxorder-1yy');
  assert.equal(murmur2(whole.subarray(2, 9)), murmur2(Buffer.from('order-1')));
});
