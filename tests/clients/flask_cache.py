"""Flask-Caching's RedisCache behind the views of a Flask application. See run.py."""

import time

import redis
from flask import Flask
from flask_caching import Cache
from harness import hold, in_threads, same, url

app = Flask(__name__)
cache = Cache(
    app,
    config={
        "CACHE_TYPE": "RedisCache",
        "CACHE_REDIS_URL": url(),
        "CACHE_KEY_PREFIX": "app:flask:",
        "CACHE_DEFAULT_TIMEOUT": 60,
    },
)
raw = redis.Redis.from_url(url())
calls = []


@app.route("/page")
@cache.cached(timeout=60, query_string=True)
def page():
    calls.append("page")
    return f"made {len(calls)}"


@cache.memoize(timeout=60)
def square(number):
    calls.append(number)
    return number * number


def views():
    with app.test_client() as browser:
        first = browser.get("/page?a=1&b=2").text
        same({browser.get("/page?b=2&a=1").text for _ in range(3)}, {first})
        same(browser.get("/page?a=2").text == first, False)
    same(len(calls), 2)


def memoize():
    calls.clear()
    with app.app_context():
        same([square(n) for n in (2, 3, 2, 3)], [4, 9, 4, 9])
        same(calls, [2, 3])
        cache.delete_memoized(square, 2)
        same(([square(n) for n in (2, 3)], calls), ([4, 9], [2, 3, 2]))
        cache.delete_memoized(square)
        same(([square(n) for n in (2, 3)], calls), ([4, 9], [2, 3, 2, 2, 3]))


def values():
    with app.app_context():
        same((cache.set("object", {"a": [1, None]}), cache.get("object")), (True, {"a": [1, None]}))
        same((cache.add("object", 1), cache.add("new", 1), cache.has("new")), (False, True, True))
        cache.set_many({f"many:{n}": n for n in range(100)}, timeout=60)
        same(cache.get_many(*(f"many:{n}" for n in range(100))), list(range(100)))
        same((cache.get_dict("many:1", "absent")), {"many:1": 1, "absent": None})
        same(0 < raw.ttl("app:flask:object") <= 60, True)
        cache.set("short", 1, timeout=1)
        time.sleep(1.1)
        same((cache.get("short"), cache.delete("object"), cache.get("object")), (None, True, None))
        same(cache.delete_many("many:0", "many:1"), ["many:0", "many:1"])
        same((cache.get("many:1"), cache.get("many:2")), (None, 2))


def counters():
    same(cache.cache.set("hits", 0), True)
    in_threads(4, lambda _: [cache.cache.inc("hits") for _ in range(50)])
    same((cache.cache.get("hits"), cache.cache.dec("hits", 10)), (200, 190))


def clear():
    """Only keys that begin with the prefix are deleted."""
    raw.set("app:other", 1)
    with app.app_context():
        same(cache.clear(), True)
    same((raw.keys("app:flask:*"), raw.get("app:other")), ([], b"1"))


hold(views, memoize, values, counters, clear)
