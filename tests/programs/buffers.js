// Allocates and drops buffers of many sizes in three threads, compresses, parses, and prints a digest.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const crypto = require('crypto');
const zlib = require('zlib');

function work(seed) {
  const hash = crypto.createHash('sha256');
  const kept = [];
  for (let i = 1; i <= 4000; i++) {
    const buffer = Buffer.allocUnsafeSlow((i * seed * 7919) % 100000).fill(i % 251);
    kept[i % 97] = buffer;
    if (i % 40 === 0) {
      const packed = zlib.deflateSync(Buffer.concat(kept.filter(Boolean).slice(0, 20)));
      hash.update(zlib.inflateSync(packed));
    }
  }
  const records = Array.from({ length: 20000 }, (_, i) => ({ i, name: 'n' + i, list: [i, i * 2] }));
  hash.update(JSON.stringify(JSON.parse(JSON.stringify(records))));
  return hash.digest('hex');
}

if (isMainThread) {
  const results = [2, 3].map((seed) => new Promise((resolve, reject) => {
    const worker = new Worker(__filename, { workerData: seed });
    worker.on('message', resolve);
    worker.on('error', reject);
  }));
  results.push(Promise.resolve(work(1)));
  Promise.all(results).then((digests) => console.log(digests.join('\n')));
} else {
  parentPort.postMessage(work(workerData));
}
