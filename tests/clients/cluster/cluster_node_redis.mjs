// createCluster of node-redis with the nodes that NODES names, and PROTOCOL. See run.py.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { createCluster, RESP_TYPES } from 'redis';
import calculateSlot from 'cluster-key-slot';

const client = createCluster({
  rootNodes: process.env.NODES.split(',').map((node) => ({ url: `redis://${node}` })),
  defaults: { RESP: Number(process.env.PROTOCOL), socket: { reconnectStrategy: 100 } },
});
client.on('error', () => {});
await client.connect();
const range = (count) => [...Array(count).keys()];
// Asks the runner for a fault, and waits for its end.
const ask = async (words) => {
  console.log(words);
  await once(process.stdin, 'data');
};

const checks = {
  async topology() {
    assert.equal(client.masters.length, 3);
    assert.match(await client.sendCommand(undefined, true, ['CLUSTER', 'INFO']), /cluster_state:ok/);
    assert.equal(await client.sendCommand(undefined, true, ['CLUSTER', 'KEYSLOT', 'app:{a}']), calculateSlot('a'));
  },
  async keys() {
    await Promise.all(range(300).map((n) => client.set(`app:${n}`, `${n}`)));
    assert.deepEqual(await Promise.all(range(300).map((n) => client.get(`app:${n}`))), range(300).map(String));
    await Promise.all(range(150).map((n) => client.del(`app:${n}`)));
    assert.equal(await client.get('app:7'), null);
    await client.mSet({ '{tag}a': '1', '{tag}b': '2' });
    assert.deepEqual(await client.mGet(['{tag}a', '{tag}b']), ['1', '2']);
    const value = Buffer.from([...range(256), 13, 10, 36]);
    await client.set(Buffer.from('app:\0\r\n\xff', 'latin1'), value);
    const found = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
    assert.deepEqual(await found.get(Buffer.from('app:\0\r\n\xff', 'latin1')), value);
  },
  async pipeline() {
    const replies = await Promise.all(
      range(1000).flatMap((n) => [client.set(`app:pipe:${n}`, `${n}`), client.get(`app:pipe:${n}`)]));
    assert.deepEqual(replies, range(1000).flatMap((n) => ['OK', `${n}`]));
  },
  async transaction() {
    assert.deepEqual(await client.multi().set('{tag}n', '1').incr('{tag}n').get('{tag}n').exec(), ['OK', 2, '2']);
  },
  async scripts() {
    const text = "redis.call('set', KEYS[1], ARGV[1]); return redis.call('incr', KEYS[1])";
    const ask = (n) => client.eval(text, { keys: [`app:script:${n}`], arguments: [`${n}`] });
    assert.deepEqual(await Promise.all(range(30).map(ask)), range(30).map((n) => n + 1));
    await assert.rejects(client.eval('return 1', { keys: ['app:1', 'app:2'] }), /CROSSSLOT/);
  },
  async scan() {
    const masters = await Promise.all(client.masters.map((master) => client.nodeClient(master)));
    await Promise.all(masters.map((master) => master.flushAll()));
    await Promise.all(range(500).map((n) => client.set(`app:scan:${n}`, `${n}`)));
    const found = new Set();
    for (const master of masters) {
      for await (const keys of master.scanIterator({ MATCH: 'app:scan:*', COUNT: 50 })) keys.forEach((key) => found.add(key));
    }
    assert.equal(found.size, 500);
  },
  async expiry() {
    const expiration = { type: 'PX', value: 60 };
    await Promise.all(range(20).map((n) => client.set(`app:short:${n}`, '1', { expiration })));
    await sleep(100);
    assert.deepEqual(await Promise.all(range(20).map((n) => client.get(`app:short:${n}`))), Array(20).fill(null));
  },
  async messages() {
    const heard = new Promise((resolve) => client.subscribe('app:channel', resolve));
    const publish = setInterval(() => client.publish('app:channel', 'hello'), 50);
    assert.equal(await heard, 'hello');
    clearInterval(publish);
    const sheard = new Promise((resolve) => client.sSubscribe('app:shard', resolve));
    const again = setInterval(() => client.sPublish('app:shard', 'hello'), 50);
    assert.equal(await sheard, 'hello');
    clearInterval(again);
    await client.unsubscribe('app:channel');
    await client.sUnsubscribe('app:shard');
  },
  async moved() {
    await Promise.all(range(20).map((n) => client.set(`{moved}${n}`, `${n}`)));
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
          await client.set(key, `${count}`);
          acknowledged.set(key, count);
          late[number] = Date.now();
        } catch (error) {
          errors.push(error);
          acknowledged.delete(key); // its outcome is open
          await sleep(10);
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
