"""limits, the limiter of Flask-Limiter and SlowAPI: of many concurrent requests exactly the allowed number passes. See run.py."""

import time

import redis
from harness import fails, hold, in_threads, same, url
from limits import parse, storage, strategies

store = storage.storage_from_string(url(), key_prefix="app:limits")
raw = redis.Redis.from_url(url())
five = parse("5/minute")


def exact(limiter):
    same(sum(in_threads(20, lambda _: limiter.hit(five, "page", "ann"))), 5)
    same((limiter.test(five, "page", "ann"), limiter.hit(five, "page", "bob")), (False, True))
    left = limiter.get_window_stats(five, "page", "ann")
    same((left.remaining, 0 < left.reset_time - time.time() <= 60), (0, True))
    limiter.clear(five, "page", "ann")
    same(limiter.hit(five, "page", "ann"), True)


def fixed_window():
    exact(strategies.FixedWindowRateLimiter(store))


def sliding_window():
    exact(strategies.SlidingWindowCounterRateLimiter(store))


def ending():
    limiter, short = strategies.FixedWindowRateLimiter(store), parse("2/second")
    same([limiter.hit(short, "door") for _ in range(3)][:2], [True, True])
    time.sleep(1.1)
    same(limiter.hit(short, "door"), True)


def moving_window():
    """This strategy needs a list; the error names the type."""
    limiter = strategies.MovingWindowRateLimiter(store)
    fails(redis.ResponseError, lambda: limiter.hit(five, "page"), "is a command of lists")


def keys():
    same(all(key.startswith(b"app:limits:") for key in raw.scan_iter()), True)


hold(fixed_window, sliding_window, ending, moving_window, keys)
