// node-redis against the server that HOST, PORT, PROTOCOL, LOGIN, PASSWORD and CA tell of. See run.py.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient, createClientPool, RESP_TYPES, WatchError } from 'redis';

const { HOST, PORT, PROTOCOL, LOGIN, PASSWORD, CA } = process.env;
const options = {
  RESP: Number(PROTOCOL),
  username: LOGIN || undefined,
  password: PASSWORD || undefined,
  socket: { host: HOST, port: Number(PORT), reconnectStrategy: 100, ...(CA && { tls: true, ca: readFileSync(CA) }) },
};
const client = createClient(options);
client.on('error', () => {}); // told while the server is away
await client.connect();
const binaryClient = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
const pool = createClientPool(options, { minimum: 2, maximum: 8 });
pool.on('error', () => {});
await pool.connect();
const range = (count) => [...Array(count).keys()];

const checks = {
  async handshake() {
    assert.equal(await client.ping(), 'PONG');
    assert.ok((await client.clientId()) > 0);
    assert.equal(await client.aclWhoAmI(), LOGIN || 'default');
    assert.match(await client.sendCommand(['CLIENT', 'INFO']), /lib-name=node-redis/);
    assert.match(await client.info('server'), /redis_version/);
  },
  async binary() {
    const key = Buffer.from('app:\0\r\n\xff', 'latin1');
    const value = Buffer.from([...range(256), 13, 10, 36]);
    await client.set(key, value);
    assert.deepEqual(await binaryClient.get(key), value);
    await client.set('app:empty', '');
    assert.equal(await client.get('app:empty'), '');
    assert.equal(await client.get('app:absent'), null);
  },
  async pipeline() {
    const replies = await Promise.all(
      range(1000).flatMap((n) => [client.set(`app:pipe:${n}`, `${n}`), client.get(`app:pipe:${n}`)]));
    assert.deepEqual(replies, range(1000).flatMap((n) => ['OK', `${n}`]));
  },
  async transaction() {
    assert.deepEqual(await client.multi().set('app:a', '1').incr('app:a').get('app:a').exec(), ['OK', 2, '2']);
    const addOne = () => pool.execute(async (own) => {
      for (;;) {
        await own.watch('app:watched');
        const value = Number((await own.get('app:watched')) ?? 0);
        try {
          return await own.multi().set('app:watched', `${value + 1}`).exec();
        } catch (error) {
          if (!(error instanceof WatchError)) throw error;
        }
      }
    });
    await Promise.all(range(4).map(async () => { for (const _ of range(25)) await addOne(); }));
    assert.equal(await client.get('app:watched'), '100');
  },
  async expiry() {
    await client.set('app:short', '1', { expiration: { type: 'PX', value: 60 } });
    await client.set('app:long', '1', { expiration: { type: 'EX', value: 100 } });
    const left = await client.ttl('app:long');
    assert.ok(left > 0 && left <= 100);
    assert.equal(await client.persist('app:long'), 1);
    assert.deepEqual([await client.ttl('app:long'), await client.ttl('app:absent')], [-1, -2]);
    await sleep(100);
    assert.equal(await client.get('app:short'), null);
  },
  async scan() {
    await client.mSet(range(500).map((n) => [`app:scan:${n}`, `${n}`]));
    const found = new Set();
    for await (const keys of client.scanIterator({ MATCH: 'app:scan:*', COUNT: 50 })) keys.forEach((key) => found.add(key));
    assert.equal(found.size, 500);
  },
  async numbers() {
    assert.deepEqual([await client.incr('app:n'), await client.incrBy('app:n', 41), await client.decr('app:n')], [1, 42, 41]);
    assert.equal(await client.incrByFloat('app:f', 1.5), '1.5');
    await client.mSet({ 'app:m1': '1', 'app:m2': '2' });
    assert.deepEqual(await client.mGet(['app:m1', 'app:absent', 'app:m2']), ['1', null, '2']);
    assert.equal(await client.del(['app:m1', 'app:m2']), 2);
  },
  async errors() {
    await client.set('app:text', 'x');
    await assert.rejects(client.incr('app:text'), { message: 'ERR value is not an integer or out of range' });
    await assert.rejects(client.lPush('app:list', 'x'), /ERR Esker serves strings: LPUSH/);
    if (LOGIN) {
      await assert.rejects(client.get('other'), /^\w*Error: NOPERM/);
      await assert.rejects(client.flushAll(), /^\w*Error: NOPERM/);
    }
  },
  async large() {
    const value = randomBytes(8 << 20);
    await client.set('app:large', value);
    assert.ok(value.equals(await binaryClient.get('app:large')));
  },
  async pool() {
    await Promise.all(range(16).map(async (number) => {
      for (const n of range(25)) {
        await pool.set(`app:pool:${number}`, `${n}`);
        assert.equal(await pool.get(`app:pool:${number}`), `${n}`);
      }
    }));
  },
  async restart() {
    await client.mSet(range(100).map((n) => [`app:kept:${n}`, `${n}`]));
    console.log('kill the server');
    await once(process.stdin, 'data');
    // It may hear late that the server is gone, and early that the store is being opened.
    const kept = async () => {
      for (;;) {
        try {
          return await client.mGet(range(100).map((n) => `app:kept:${n}`));
        } catch (error) {
          if (!/Socket closed|LOADING/.test(error.message)) throw error;
          await sleep(20);
        }
      }
    };
    assert.deepEqual(await kept(), range(100).map(String));
    assert.equal(await client.incr('app:n'), 42);
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log('ok', name);
}
process.exit(0);
