// redlock: a lock is held by one, is extended and released by its holder alone, and ends by itself. See run.py.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import Redlock from 'redlock';
import { connect, hold, range } from './harness.mjs';

const client = connect();
const manager = new Redlock([client], { retryCount: 0 });
const held = { name: 'LockError' };

await hold({
  async exclusion() {
    const lock = await manager.lock('app:lock', 30_000);
    assert.equal(await client.get('app:lock'), lock.value);
    await assert.rejects(manager.lock('app:lock', 30_000), held);
    await lock.unlock();
    assert.equal(await client.exists('app:lock'), 0);
  },
  async token() {
    const lock = await manager.lock('app:lock', 30_000);
    const stranger = Object.assign(Object.create(Object.getPrototypeOf(lock)), lock, { value: 'of somebody else' });
    await assert.rejects(stranger.unlock(), held);
    await assert.rejects(stranger.extend(60_000), held);
    assert.equal(await client.get('app:lock'), lock.value);
    await lock.unlock();
  },
  async extend() {
    const lock = await manager.lock('app:lock', 1_000);
    await lock.extend(30_000);
    const left = await client.pttl('app:lock');
    assert.ok(left > 1_000 && left <= 30_000, `${left}`);
    await lock.unlock();
  },
  async expiry() {
    const lock = await manager.lock('app:lock', 100);
    await sleep(150);
    const later = await manager.lock('app:lock', 30_000);
    await assert.rejects(lock.unlock(), held);
    await later.unlock();
  },
  async several() {
    const lock = await manager.lock(['app:one', 'app:two'], 30_000);
    await assert.rejects(manager.lock('app:two', 30_000), held);
    await lock.unlock();
    assert.equal(await client.exists('app:one', 'app:two'), 0);
  },
  async together() {
    const patient = new Redlock([client], { retryCount: -1, retryDelay: 5, retryJitter: 5 });
    let inside = 0;
    await Promise.all(range(20).map(async () => {
      const lock = await patient.lock('app:lock', 30_000);
      assert.equal(++inside, 1);
      await sleep(1);
      inside--;
      await lock.unlock();
    }));
  },
});
