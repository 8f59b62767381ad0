// BullMQ keeps its jobs in lists, hashes, sorted sets and streams. Whoever tries it here is told so. See run.py.
import assert from 'node:assert/strict';
import { Queue, Worker } from 'bullmq';
import { hold, options } from './harness.mjs';

const plainly = /ERR Esker serves strings: [A-Z]+ is a command of (lists|hashes|sorted sets|streams) \(see docs\/compatibility\.md\)/;
const connection = { connection: options, prefix: 'app:bull' };

await hold({
  async add() {
    const queue = new Queue('mails', connection);
    await assert.rejects(queue.add('mail', { to: 'ann' }), plainly);
    await assert.rejects(queue.addBulk([{ name: 'mail', data: {} }, { name: 'mail', data: {} }]), plainly);
    await assert.rejects(queue.getJobCounts(), plainly);
    await queue.close();
  },
  async work() {
    const worker = new Worker('mails', async () => {}, connection);
    const [error] = await new Promise((resolve) => worker.on('error', (...told) => resolve(told)));
    assert.match(error.message, plainly);
    await worker.close(true);
  },
});
