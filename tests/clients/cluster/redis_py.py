"""RedisCluster of redis-py with the cluster given by NODES and PROTOCOL. See run.py."""

import os
import sys
import threading
import time

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import fails, hold, in_threads, same  # noqa: E402

nodes = [ClusterNode(*address.split(":")) for address in os.environ["NODES"].split(",")]
options = {"protocol": int(os.environ["PROTOCOL"]), "socket_timeout": 10}
client = RedisCluster(startup_nodes=nodes, **options)


def ask(words):
    """Asks the runner for a fault, and waits for its end."""
    print(words, flush=True)
    sys.stdin.readline()


def topology():
    same(len(client.get_primaries()), 3)
    same(client.cluster_info()["cluster_state"], "ok")
    same(len(client.cluster_nodes()), 3)
    same(len(client.cluster_shards()) >= 3, True)
    same(client.cluster_keyslot("app:{a}"), key_slot(b"app:{a}"))
    same(all(client.ping(target_nodes=RedisCluster.ALL_NODES).values()) if isinstance(
        client.ping(target_nodes=RedisCluster.ALL_NODES), dict) else True, True)


def keys():
    for n in range(300):
        same(client.set(f"app:{n}", n), True)
    same([client.get(f"app:{n}") for n in range(300)], [b"%d" % n for n in range(300)])
    same(client.delete(*[f"app:{n}" for n in range(0, 300, 2)]), 150)
    same(client.exists(*[f"app:{n}" for n in range(300)]), 150)
    client.mset_nonatomic({f"app:m{n}": n for n in range(100)})
    same(client.mget_nonatomic([f"app:m{n}" for n in range(100)]), [b"%d" % n for n in range(100)])
    same(client.mset({"{tag}a": 1, "{tag}b": 2}), True)
    same(client.mget("{tag}a", "{tag}b"), [b"1", b"2"])


def pipeline():
    pipe = client.pipeline()
    for n in range(1000):
        pipe.set(f"app:pipe:{n}", n)
        pipe.get(f"app:pipe:{n}")
    same(pipe.execute(), [reply for n in range(1000) for reply in (True, b"%d" % n)])


def transaction():
    with client.pipeline(transaction=True) as pipe:
        pipe.set("{tag}n", 1).incr("{tag}n").get("{tag}n")
        same(pipe.execute(), [b"OK", 2, b"2"])

    def add_one(_):
        for _ in range(10):
            while True:
                with client.pipeline(transaction=True) as pipe:
                    try:
                        pipe.watch("{tag}watched")
                        value = int(pipe.get("{tag}watched") or 0)
                        pipe.multi()
                        pipe.set("{tag}watched", value + 1)
                        pipe.execute()
                        break
                    except redis.WatchError:
                        continue

    in_threads(3, add_one)
    same(client.get("{tag}watched"), b"30")


def scripts():
    text = "redis.call('set', KEYS[1], ARGV[1]); return redis.call('incr', KEYS[1])"
    script = client.register_script(text)
    for n in range(30):
        same(script(keys=[f"app:script:{n}"], args=[n]), n + 1)
        same(client.eval(text, 1, f"app:script:{n}", n), n + 1)
    fails(redis.exceptions.RedisClusterException, lambda: client.eval(text, 2, "app:1", "app:2", 1))


def scan():
    client.flushall(target_nodes=RedisCluster.PRIMARIES)
    pipe = client.pipeline()
    for n in range(500):
        pipe.set(f"app:scan:{n}", n)
    pipe.execute()
    same(set(client.scan_iter("app:scan:*", count=50)), {b"app:scan:%d" % n for n in range(500)})
    same(client.dbsize(target_nodes=RedisCluster.PRIMARIES), 500)


def expiry():
    for n in range(20):
        client.set(f"app:short:{n}", 1, px=60)
        client.set(f"app:long:{n}", 1, ex=100)
    same(all(0 < client.ttl(f"app:long:{n}") <= 100 for n in range(20)), True)
    time.sleep(0.1)
    same([client.get(f"app:short:{n}") for n in range(20)], [None] * 20)


def messages():
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.ssubscribe("app:shard", "app:other")
    for channel in ("app:shard", "app:other"):
        found = None
        for _ in range(100):
            client.spublish(channel, "hello")
            found = listener.get_sharded_message(timeout=0.1)
            if found:
                break
        same((found["channel"], found["data"]), (channel.encode(), b"hello"))
    listener.close()
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("app:channel")
    listener.get_message(timeout=1)
    found = None
    for _ in range(100):
        client.publish("app:channel", "hello")
        found = listener.get_message(timeout=0.1)
        if found:
            break
    same(found["data"], b"hello")
    listener.close()


def moved():
    for n in range(20):
        client.set("{moved}%d" % n, n)
    ask("transfer the slot %d" % key_slot(b"moved"))
    same([client.get("{moved}%d" % n) for n in range(20)], [b"%d" % n for n in range(20)])
    same(client.incr("{moved}0"), 1)


def kill():
    ends, acknowledged, late = threading.Event(), {}, {}
    errors = []

    def write(number):
        own = RedisCluster(startup_nodes=nodes, **options)
        count = 0
        while not ends.is_set():
            count += 1
            key = f"app:kill:{number}:{count % 100}"
            try:
                own.set(key, count)
                acknowledged[key] = count
                late[number] = time.monotonic()
            except redis.RedisError as error:
                errors.append(error)
                acknowledged.pop(key, None)  # its outcome is open

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    time.sleep(0.5)
    ask("kill the leader of the slot %d" % key_slot(b"app:kill:0:1"))
    since = time.monotonic()
    while len([at for at in late.values() if at > since]) < 4:
        time.sleep(0.1)
    ends.set()
    [thread.join() for thread in threads]
    lost = {key: count for key, count in acknowledged.items() if client.get(key) != b"%d" % count}
    same(lost, {})
    print(f"   {len(errors)} errors reached the writers: {errors[:1]}")


hold(topology, keys, pipeline, transaction, scripts, scan, expiry, messages, moved, kill)
