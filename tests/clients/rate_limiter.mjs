// rate-limiter-flexible over ioredis and node-redis: of many who ask at once exactly as many get in as may. See run.py.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { BurstyRateLimiter, RateLimiterRedis } from 'rate-limiter-flexible';
import { createClient } from 'redis';
import { CA, connect, hold, HOST, LOGIN, options, PASSWORD, PORT, range } from './harness.mjs';

const client = connect();
const other = createClient({
  username: LOGIN || undefined,
  password: PASSWORD || undefined,
  socket: { host: HOST, port: Number(PORT), ...(CA ? { tls: true, ca: options.tls.ca } : {}) },
});
await other.connect();
const limiter = (more) => new RateLimiterRedis({ storeClient: client, keyPrefix: 'app:limit', points: 5, duration: 60, ...more });

async function exact(asked) {
  const asks = await Promise.allSettled(range(20).map(() => asked.consume('ann')));
  assert.equal(asks.filter((ask) => ask.status === 'fulfilled').length, 5);
  for (const { reason } of asks.filter((ask) => ask.status === 'rejected')) {
    assert.equal(reason.remainingPoints, 0);
    assert.ok(reason.msBeforeNext > 0 && reason.msBeforeNext <= 60_000, `${reason}`);
  }
  assert.equal((await asked.consume('bob')).remainingPoints, 4);
}

await hold({
  ioredis: () => exact(limiter({ keyPrefix: 'app:ioredis' })),
  noderedis: () => exact(limiter({ keyPrefix: 'app:noderedis', storeClient: other, useRedisPackage: true })),
  async points() {
    const asked = limiter({ keyPrefix: 'app:points' });
    assert.equal((await asked.consume('ann', 3)).remainingPoints, 2);
    assert.equal((await asked.reward('ann', 1)).remainingPoints, 3);
    assert.equal((await asked.penalty('ann', 2)).remainingPoints, 1);
    assert.equal((await asked.get('ann')).consumedPoints, 4);
    assert.equal(await asked.delete('ann'), true);
    assert.equal(await asked.get('ann'), null);
    assert.equal((await asked.set('ann', 5, 60)).consumedPoints, 5);
    await assert.rejects(asked.consume('ann'), { remainingPoints: 0 });
  },
  async ending() {
    const asked = limiter({ keyPrefix: 'app:ending', points: 1, duration: 1 });
    await asked.consume('ann');
    await assert.rejects(asked.consume('ann'), { remainingPoints: 0 });
    await sleep(1_050);
    await asked.consume('ann');
  },
  async blocking() {
    const asked = limiter({ keyPrefix: 'app:blocking', points: 1, blockDuration: 300 });
    await asked.consume('ann');
    await assert.rejects(asked.consume('ann'), ({ msBeforeNext }) => msBeforeNext > 60_000 && msBeforeNext <= 300_000);
    const left = await client.pttl('app:blocking:ann');
    assert.ok(left > 60_000 && left <= 300_000, `${left}`);
  },
  async expiry() {
    const asked = limiter({ keyPrefix: 'app:kept', duration: 0 });
    await asked.consume('ann');
    assert.equal(await client.ttl('app:kept:ann'), -1);
  },
  async burst() {
    const asked = new BurstyRateLimiter(limiter({ keyPrefix: 'app:steady', points: 2 }), limiter({ keyPrefix: 'app:burst', points: 3 }));
    const asks = await Promise.allSettled(range(10).map(() => asked.consume('ann')));
    assert.equal(asks.filter((ask) => ask.status === 'fulfilled').length, 5);
  },
});
