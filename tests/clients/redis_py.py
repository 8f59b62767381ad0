"""redis-py with the server given by HOST, PORT, PROTOCOL, LOGIN, PASSWORD and CA. See run.py."""

import os
import sys
import time

import redis
from harness import fails, hold, in_threads, login, password, protocol, same, url
from redis.backoff import ConstantBackoff
from redis.retry import Retry

client = redis.Redis.from_url(url(), retry=Retry(ConstantBackoff(0.1), 50))


def refused(start, *command):
    try:
        found = client.execute_command(*command)
    except redis.ResponseError as error:
        # redis-py removes the error code from the text if it has a class for the code.
        return same(start in f"{error}" or start in type(error).__name__, True)
    raise AssertionError(f"{command} is answered {found}")


def handshake():
    same(client.ping(), True)
    same(client.client_id() > 0, True)
    same(client.acl_whoami() in (login or "default", (login or "default").encode()), True)
    same(any(each["lib-name"].startswith("redis-py") for each in client.client_list()), True) if not login else None
    same(client.config_get("maxmemory-policy") != {}, True) if not login else None
    same("redis_version" in client.info(), True)


def binary():
    value = bytes(range(256)) + b"\r\n$-1\r\n"
    client.set(b"app:\x00\r\n\xff", value)
    same(client.get(b"app:\x00\r\n\xff"), value)
    client.set("app:empty", b"")
    same(client.get("app:empty"), b"")
    same(client.get("app:absent"), None)


def pipeline():
    pipe = client.pipeline(transaction=False)
    for n in range(1000):
        pipe.set(f"app:pipe:{n}", n)
        pipe.get(f"app:pipe:{n}")
    same(pipe.execute(), [reply for n in range(1000) for reply in (True, b"%d" % n)])


def transaction():
    pipe = client.pipeline(transaction=True)
    pipe.set("app:a", 1).incr("app:a").get("app:a")
    same(pipe.execute(), [True, 2, b"2"])

    def add_one(pipe):
        value = int(pipe.get("app:watched") or 0)
        pipe.multi()
        pipe.set("app:watched", value + 1)

    in_threads(4, lambda _: [client.transaction(add_one, "app:watched") for _ in range(25)])
    same(client.get("app:watched"), b"100")


def expiry():
    client.set("app:short", 1, px=60)
    client.set("app:long", 1, ex=100)
    same(0 < client.ttl("app:long") <= 100, True)
    same((client.persist("app:long"), client.ttl("app:long"), client.ttl("app:absent")), (True, -1, -2))
    time.sleep(0.1)
    same(client.get("app:short"), None)


def scan():
    client.mset({f"app:scan:{n}": n for n in range(500)})
    same(set(client.scan_iter("app:scan:*", count=50)), {b"app:scan:%d" % n for n in range(500)})


def numbers():
    same((client.incr("app:n"), client.incrby("app:n", 41), client.decr("app:n")), (1, 42, 41))
    same(client.incrbyfloat("app:f", 1.5), 1.5)
    client.mset({"app:m1": 1, "app:m2": 2})
    same(client.mget("app:m1", "app:absent", "app:m2"), [b"1", None, b"2"])
    same((client.exists("app:m1", "app:m2"), client.delete("app:m1", "app:m2")), (2, 2))


def errors():
    client.set("app:text", "x")
    refused("value is not an integer or out of range", "INCR", "app:text")
    refused("Esker serves strings: LPUSH", "LPUSH", "app:list", "x")
    refused("wrong number of arguments for 'get' command", "GET")
    if login:
        refused("NoPermission", "GET", "other")
        refused("NoPermission", "FLUSHALL")


def lock():
    one, other = client.lock("app:lock", timeout=30), client.lock("app:lock", timeout=30)
    same((one.acquire(), one.owned(), one.locked()), (True, True, True))
    same(other.acquire(blocking=False), False)
    other.local.token = b"of somebody else"
    fails(redis.exceptions.LockNotOwnedError, lambda: other.extend(20))
    fails(redis.exceptions.LockNotOwnedError, other.release)
    same((one.owned(), one.extend(20), 45 < client.ttl("app:lock") <= 50), (True, True, True))
    same((one.reacquire(), 25 < client.ttl("app:lock") <= 30), (True, True))
    one.release()
    same(client.exists("app:lock"), 0)
    short = client.lock("app:lock", timeout=0.1)
    same((short.acquire(), other.acquire(blocking_timeout=5)), (True, True))
    fails(redis.exceptions.LockError, short.release)
    other.release()
    counted = []

    def add_one(number):
        for n in range(25):
            with client.lock("app:lock", timeout=30, sleep=0.005):
                counted.append(len(counted))

    in_threads(4, add_one)
    same(counted, list(range(100)))


def scripts():
    limit = client.register_script(
        "local n = redis.call('INCR', KEYS[1]) if n == 1 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end return n"
    )
    same([limit(keys=["app:limit"], args=[60]) for _ in range(3)], [1, 2, 3])
    same(0 < client.ttl("app:limit") <= 60, True)
    same(client.eval("return cjson.encode({KEYS[1], ARGV[1]})", 1, "app:k", "v"), b'["app:k","v"]')
    pipe = client.pipeline(transaction=True)
    limit(keys=["app:limit"], args=[60], client=pipe)
    pipe.get("app:limit")
    same(pipe.execute(), [4, b"4"])
    refused("non declared key", "EVAL", "return redis.call('get','app:other')", 1, "app:k")


def large():
    value = os.urandom(8 << 20)
    client.set("app:large", value)
    same(client.get("app:large") == value, True)


def pool():
    def work(number):
        for n in range(50):
            client.set(f"app:pool:{number}", n)
            same(client.get(f"app:pool:{number}"), b"%d" % n)

    in_threads(8, work)


def caching():
    """Client-side caching: a value is read once, and again after another client has changed it. Needs RESP3."""
    if protocol != 3:
        return
    from redis.cache import CacheConfig

    keeper = redis.Redis.from_url(url(), cache_config=CacheConfig())
    client.set("app:cached", "one")
    same([keeper.get("app:cached") for _ in range(3)], [b"one"] * 3)
    same(keeper.get_cache().size, 1)
    reads = lambda: client.info("stats")["keyspace_hits"]
    before = reads() if not login else 0
    same(keeper.get("app:cached"), b"one")
    same(reads() if not login else 0, before)
    client.set("app:cached", "two")
    until = time.monotonic() + 10
    while keeper.get("app:cached") != b"two":
        same(time.monotonic() < until, True)
    same(keeper.get_cache().size, 1)
    client.delete("app:cached")
    until = time.monotonic() + 10
    while keeper.get("app:cached") is not None:
        same(time.monotonic() < until, True)
    keeper.close()


def unix_socket():
    """Connects to the same server by its unix socket."""
    path = os.environ["SOCKET"]
    local = redis.Redis.from_url(f"unix://{path}", username=login, password=password)
    local.set("app:socket", "here")
    same(client.get("app:socket"), b"here")
    same(local.client_info()["addr"], f"{path}:0")


def restart():
    client.mset({f"app:kept:{n}": n for n in range(100)})
    print("kill the server", flush=True)
    sys.stdin.readline()
    same(client.mget([f"app:kept:{n}" for n in range(100)]), [b"%d" % n for n in range(100)])
    same(client.incr("app:n"), 42)


hold(
    handshake, binary, pipeline, transaction, expiry, scan, numbers, errors, lock, scripts, large, pool, caching,
    unix_socket, restart,
)
