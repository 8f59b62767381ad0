// ioredis against the server that HOST, PORT, LOGIN, PASSWORD and CA tell of. It speaks RESP2 only. See run.py.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';

const { HOST, PORT, LOGIN, PASSWORD, CA } = process.env;
const connect = () => new Redis({
  host: HOST,
  port: Number(PORT),
  username: LOGIN || undefined,
  password: PASSWORD || undefined,
  tls: CA ? { ca: readFileSync(CA) } : undefined,
  retryStrategy: () => 100,
  maxRetriesPerRequest: null,
}).on('error', () => {}); // told while the server is away
const client = connect();
const others = [connect(), connect(), connect(), connect()];
const range = (count) => [...Array(count).keys()];

const checks = {
  async handshake() {
    assert.equal(await client.ping(), 'PONG');
    assert.ok((await client.client('ID')) > 0);
    assert.equal(await client.call('ACL', 'WHOAMI'), LOGIN || 'default');
    assert.match(await client.client('INFO'), /lib-name=ioredis/);
    assert.match(await client.info(), /redis_version/);
  },
  async binary() {
    const key = Buffer.from('app:\0\r\n\xff', 'latin1');
    const value = Buffer.from([...range(256), 13, 10, 36]);
    await client.set(key, value);
    assert.deepEqual(await client.getBuffer(key), value);
    await client.set('app:empty', '');
    assert.equal(await client.get('app:empty'), '');
    assert.equal(await client.get('app:absent'), null);
  },
  async pipeline() {
    const pipe = client.pipeline();
    range(1000).forEach((n) => pipe.set(`app:pipe:${n}`, n).get(`app:pipe:${n}`));
    assert.deepEqual(await pipe.exec(), range(1000).flatMap((n) => [[null, 'OK'], [null, `${n}`]]));
  },
  async transaction() {
    const replies = await client.multi().set('app:a', 1).incr('app:a').get('app:a').exec();
    assert.deepEqual(replies, [[null, 'OK'], [null, 2], [null, '2']]);
    const addOne = async (own) => {
      for (;;) {
        await own.watch('app:watched');
        const value = Number((await own.get('app:watched')) ?? 0);
        if (await own.multi().set('app:watched', value + 1).exec()) return;
      }
    };
    await Promise.all(others.map(async (own) => { for (const _ of range(25)) await addOne(own); }));
    assert.equal(await client.get('app:watched'), '100');
  },
  async expiry() {
    await client.set('app:short', 1, 'PX', 60);
    await client.set('app:long', 1, 'EX', 100);
    const left = await client.ttl('app:long');
    assert.ok(left > 0 && left <= 100);
    assert.deepEqual([await client.persist('app:long'), await client.ttl('app:long'), await client.ttl('app:absent')], [1, -1, -2]);
    await sleep(100);
    assert.equal(await client.get('app:short'), null);
  },
  async scan() {
    await client.mset(Object.fromEntries(range(500).map((n) => [`app:scan:${n}`, n])));
    const found = new Set();
    for await (const keys of client.scanStream({ match: 'app:scan:*', count: 50 })) keys.forEach((key) => found.add(key));
    assert.equal(found.size, 500);
  },
  async numbers() {
    assert.deepEqual([await client.incr('app:n'), await client.incrby('app:n', 41), await client.decr('app:n')], [1, 42, 41]);
    assert.equal(await client.incrbyfloat('app:f', 1.5), '1.5');
    await client.mset('app:m1', 1, 'app:m2', 2);
    assert.deepEqual(await client.mget('app:m1', 'app:absent', 'app:m2'), ['1', null, '2']);
    assert.equal(await client.del('app:m1', 'app:m2'), 2);
  },
  async errors() {
    await client.set('app:text', 'x');
    await assert.rejects(client.incr('app:text'), { message: 'ERR value is not an integer or out of range' });
    await assert.rejects(client.lpush('app:list', 'x'), /ERR Esker serves strings: LPUSH/);
    await assert.rejects(client.call('GET'), { message: "ERR wrong number of arguments for 'get' command" });
    if (LOGIN) {
      await assert.rejects(client.get('other'), /NOPERM/);
      await assert.rejects(client.flushall(), /NOPERM/);
    }
  },
  async scripts() {
    const lua = "local n = redis.call('INCRBY', KEYS[1], ARGV[1]) redis.call('EXPIRE', KEYS[1], 60) return {n, KEYS[1]}";
    for (const own of [client, ...others]) own.defineCommand('add', { numberOfKeys: 1, lua });
    assert.deepEqual(await client.add('app:script', 1), [1, 'app:script']);
    await Promise.all(others.map((own) => Promise.all(range(25).map(() => own.add('app:script', 1)))));
    const pipe = client.pipeline();
    range(100).forEach(() => pipe.add('app:script', 1));
    assert.deepEqual((await pipe.exec()).at(-1), [null, [201, 'app:script']]);
    assert.deepEqual(await client.multi().add('app:script', 9).get('app:script').exec(), [[null, [210, 'app:script']], [null, '210']]);
    await assert.rejects(client.eval("return redis.call('get', 'app:other')", 1, 'app:k'), /non declared key/);
  },
  async large() {
    const value = randomBytes(8 << 20);
    await client.set('app:large', value);
    assert.ok(value.equals(await client.getBuffer('app:large')));
  },
  async pool() {
    await Promise.all(others.map(async (own, number) => {
      for (const n of range(50)) {
        await own.set(`app:pool:${number}`, n);
        assert.equal(await own.get(`app:pool:${number}`), `${n}`);
      }
    }));
  },
  async restart() {
    await client.mset(Object.fromEntries(range(100).map((n) => [`app:kept:${n}`, n])));
    console.log('kill the server');
    await once(process.stdin, 'data');
    assert.deepEqual(await client.mget(range(100).map((n) => `app:kept:${n}`)), range(100).map(String));
    assert.equal(await client.incr('app:n'), 42);
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log('ok', name);
}
process.exit(0);
