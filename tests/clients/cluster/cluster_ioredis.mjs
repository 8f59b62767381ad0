// Cluster of ioredis with the nodes that NODES names. See run.py.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster } from 'ioredis';
import calculateSlot from 'cluster-key-slot';

const nodes = process.env.NODES.split(',').map((node) => ({ host: node.split(':')[0], port: Number(node.split(':')[1]) }));
const client = new Cluster(nodes, { redisOptions: { maxRetriesPerRequest: 20 } });
client.on('error', () => {});
const range = (count) => [...Array(count).keys()];
// Asks the runner for a fault, and waits for its end.
const ask = async (words) => {
  console.log(words);
  await once(process.stdin, 'data');
};

const checks = {
  async topology() {
    await client.ping();
    assert.equal(client.nodes('master').length, 3);
    assert.match(await client.cluster('INFO'), /cluster_state:ok/);
    assert.equal(await client.cluster('KEYSLOT', 'app:{a}'), calculateSlot('a'));
  },
  async keys() {
    await Promise.all(range(300).map((n) => client.set(`app:${n}`, n)));
    assert.deepEqual(await Promise.all(range(300).map((n) => client.get(`app:${n}`))), range(300).map(String));
    assert.equal((await Promise.all(range(150).map((n) => client.del(`app:${n}`)))).length, 150);
    assert.equal(await client.get('app:7'), null);
    await client.mset('{tag}a', 1, '{tag}b', 2);
    assert.deepEqual(await client.mget('{tag}a', '{tag}b'), ['1', '2']);
    await assert.rejects(client.mget('app:1', 'app:2'), /CROSSSLOT/);
    const value = Buffer.from([...range(256), 13, 10, 36]);
    await client.set(Buffer.from('app:\0\r\n\xff', 'latin1'), value);
    assert.ok(value.equals(await client.getBuffer(Buffer.from('app:\0\r\n\xff', 'latin1'))));
  },
  async pipeline() {
    // All keys of a pipeline of ioredis belong to slots of one node; those of an automatic one do not.
    const pipe = client.pipeline();
    range(500).forEach((n) => pipe.set(`{tag}${n}`, n).get(`{tag}${n}`));
    assert.deepEqual(await pipe.exec(), range(500).flatMap((n) => [[null, 'OK'], [null, `${n}`]]));
    const automatic = new Cluster(nodes, { enableAutoPipelining: true });
    const replies = await Promise.all(range(500).flatMap((n) => [automatic.set(`app:pipe:${n}`, n), automatic.get(`app:pipe:${n}`)]));
    assert.deepEqual(replies, range(500).flatMap((n) => ['OK', `${n}`]));
    automatic.disconnect();
  },
  async transaction() {
    const found = await client.multi().set('{tag}n', 1).incr('{tag}n').get('{tag}n').exec();
    assert.deepEqual(found, [[null, 'OK'], [null, 2], [null, '2']]);
  },
  async scripts() {
    client.defineCommand('setAndAdd', { numberOfKeys: 1, lua: "redis.call('set', KEYS[1], ARGV[1]); return redis.call('incr', KEYS[1])" });
    assert.deepEqual(await Promise.all(range(30).map((n) => client.setAndAdd(`app:script:${n}`, n))), range(30).map((n) => n + 1));
    await assert.rejects(client.eval('return 1', 2, 'app:1', 'app:2'), /CROSSSLOT/);
  },
  async scan() {
    await Promise.all(client.nodes('master').map((node) => node.flushall()));
    await Promise.all(range(500).map((n) => client.set(`app:scan:${n}`, n)));
    const found = new Set();
    for (const node of client.nodes('master')) {
      for await (const keys of node.scanStream({ match: 'app:scan:*', count: 50 })) keys.forEach((key) => found.add(key));
    }
    assert.equal(found.size, 500);
    const sizes = await Promise.all(client.nodes('master').map((node) => node.dbsize()));
    assert.equal(sizes.reduce((all, size) => all + size), 500);
  },
  async expiry() {
    await Promise.all(range(20).map((n) => client.set(`app:short:${n}`, 1, 'PX', 60)));
    await sleep(100);
    assert.deepEqual(await Promise.all(range(20).map((n) => client.get(`app:short:${n}`))), Array(20).fill(null));
  },
  async messages() {
    const listener = new Cluster(nodes);
    const heard = once(listener, 'message');
    await listener.subscribe('app:channel');
    // From every node.
    const publish = setInterval(() => client.nodes('master').forEach((node) => node.publish('app:channel', 'hello')), 50);
    assert.deepEqual((await heard).slice(0, 2), ['app:channel', 'hello']);
    clearInterval(publish);
    listener.disconnect();
    const sharded = new Cluster(nodes, { shardedSubscribers: true });
    const sheard = once(sharded, 'smessage');
    await sharded.ssubscribe('app:shard');
    const again = setInterval(() => client.spublish('app:shard', 'hello'), 50);
    assert.deepEqual((await sheard).slice(0, 2), ['app:shard', 'hello']);
    clearInterval(again);
    sharded.disconnect();
  },
  async moved() {
    await Promise.all(range(20).map((n) => client.set(`{moved}${n}`, n)));
    await ask(`transfer the slot ${calculateSlot('moved')}`);
    assert.deepEqual(await Promise.all(range(20).map((n) => client.get(`{moved}${n}`))), range(20).map(String));
    assert.equal(await client.incr('{moved}0'), 1);
  },
  async kill() {
    let [ends, errors] = [false, []];
    const [acknowledged, late] = [new Map(), []];
    const write = async (number) => {
      for (let count = 1; !ends; count++) {
        const key = `app:kill:${number}:${count % 100}`;
        try {
          await client.set(key, count);
          acknowledged.set(key, count);
          late[number] = Date.now();
        } catch (error) {
          errors.push(error);
          acknowledged.delete(key); // its outcome is open
        }
      }
    };
    const writers = range(4).map(write);
    await sleep(500);
    await ask(`kill the leader of the slot ${calculateSlot('app:kill:0:1')}`);
    const since = Date.now();
    while (late.filter((at) => at > since).length < 4) await sleep(100);
    ends = true;
    await Promise.all(writers);
    const lost = [];
    for (const [key, count] of acknowledged) if ((await client.get(key)) !== `${count}`) lost.push(key);
    assert.deepEqual(lost, []);
    console.log(`   ${errors.length} errors reached the writers: ${errors.slice(0, 1)}`);
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log('ok', name);
}
process.exit(0);
