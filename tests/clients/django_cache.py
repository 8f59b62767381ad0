"""django-redis as the cache of a Django project, in database 1. See run.py."""

import time

import django
import redis
from django.conf import settings
from harness import fails, hold, in_threads, login, same, url

settings.configure(
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": url(1),
            "KEY_PREFIX": "app",
            "OPTIONS": {"COMPRESSOR": "django_redis.compressors.zlib.ZlibCompressor"},
        }
    }
)
django.setup()

from django.core.cache import cache  # noqa: E402

raw = redis.Redis.from_url(url(1))


def objects():
    value = {"name": "Ann", "tags": ("a", "b"), "page": "x" * 100_000}
    cache.set("object", value)
    same((cache.get("object"), cache.get("absent"), cache.get("absent", 7)), (value, None, 7))
    same((raw.exists("app:1:object"), redis.Redis.from_url(url(0)).exists("app:1:object")), (1, 0))
    cache.set("object", "new", version=2)
    same((cache.get("object", version=2), cache.get("object")), ("new", value))
    same((cache.add("object", 1), cache.add("added", 1)), (False, True))
    same((cache.delete("added"), cache.delete("added"), cache.has_key("object")), (True, False, True))


def get_or_set():
    calls = []

    def make():
        calls.append(1)
        return [1, 2, 3]

    same([cache.get_or_set("made", make, 60) for _ in range(3)], [[1, 2, 3]] * 3)
    same(len(calls), 1)


def many():
    cache.set_many({f"many:{n}": n for n in range(100)}, timeout=60)
    same(cache.get_many([f"many:{n}" for n in range(101)]), {f"many:{n}": n for n in range(100)})
    cache.delete_many([f"many:{n}" for n in range(50)])
    same(len(cache.get_many([f"many:{n}" for n in range(100)])), 50)


def incr():
    cache.set("hits", 0, timeout=60)
    in_threads(4, lambda _: [cache.incr("hits") for _ in range(50)])
    same((cache.get("hits"), cache.decr("hits", 10)), (200, 190))
    same(0 < cache.ttl("hits") <= 60, True)
    fails(ValueError, lambda: cache.incr("absent"))


def ttl():
    cache.set("short", 1, timeout=0.1)
    cache.set("long", 1, timeout=100)
    cache.set("ever", 1, timeout=None)
    same((0 < cache.ttl("long") <= 100, 99_000 < cache.pttl("long") <= 100_000), (True, True))
    same((cache.ttl("ever"), cache.ttl("absent")), (None, 0))
    same((cache.touch("long", 500), cache.touch("absent")), (True, False))
    same(100 < cache.ttl("long") <= 500, True)
    same((cache.persist("long"), cache.ttl("long")), (True, None))
    same((cache.expire("long", 50), 0 < cache.ttl("long") <= 50), (True, True))
    time.sleep(0.15)
    same(cache.get("short"), None)


def lock():
    with cache.lock("lock", timeout=30):
        same(cache.lock("lock", timeout=30).acquire(blocking=False), False)
    seen = []

    def enter(number):
        for _ in range(10):
            with cache.lock("lock", timeout=30, sleep=0.005):
                value = len(seen)
                time.sleep(0.001)
                seen.append(value)

    in_threads(4, enter)
    same(seen, list(range(40)))


def patterns():
    cache.set_many({f"page:{n}": n for n in range(300)})
    cache.set("other", 1)
    same(sorted(cache.keys("page:*")), sorted(f"page:{n}" for n in range(300)))
    same(len(set(cache.iter_keys("page:1*", itersize=20))), 111)
    same(cache.delete_pattern("page:*", itersize=50), 300)
    same((cache.keys("page:*"), cache.get("other")), ([], 1))


def clear():
    outside = redis.Redis.from_url(url(0))
    outside.set("app:outside", 1)
    if login:  # FLUSHDB needs the admin right
        fails(redis.exceptions.NoPermissionError, cache.clear)
        return
    cache.clear()
    same((raw.dbsize(), outside.get("app:outside")), (0, b"1"))


hold(objects, get_or_set, many, incr, ttl, lock, patterns, clear)
