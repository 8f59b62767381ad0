"""Pottery's Redlock and NextID: scripts that read a key and change it. The keys begin with redlock: and nextid:.
See run.py."""

import time

import redis
from harness import fails, hold, in_threads, same, url
from pottery import NextID, QuorumNotAchieved, Redlock, ReleaseUnlockedLock, TooManyExtensions

client = redis.Redis.from_url(url())


def lock(seconds=30, **options):
    return Redlock(key="printer", masters={client}, auto_release_time=seconds, **options)


def exclusion():
    one, other = lock(), lock()
    same((one.acquire(), other.acquire(blocking=False)), (True, False))
    same((0 < one.locked() <= 30, other.locked()), (True, 0))
    fails(ReleaseUnlockedLock, other.release)
    same(client.exists("redlock:printer"), 1)
    one.release()
    same((client.exists("redlock:printer"), other.acquire(blocking=False)), (0, True))
    other.release()


def extension():
    one = lock(2, num_extensions=1)
    one.acquire()
    time.sleep(0.5)
    before = client.pttl("redlock:printer")
    one.extend()
    same(before < 1600 < client.pttl("redlock:printer") <= 2000, True)
    fails(TooManyExtensions, one.extend)
    one.release()


def expiry():
    one, other = lock(0.2), lock()
    one.acquire()
    time.sleep(0.25)
    same((one.locked(), other.acquire(blocking=False)), (0, True))
    fails(ReleaseUnlockedLock, one.release)
    other.release()


def threads():
    seen = []

    def enter(number):
        for _ in range(10):
            with lock():
                value = len(seen)
                time.sleep(0.001)
                seen.append(value)

    in_threads(4, enter)
    same(seen, list(range(40)))


def ids():
    """IDs increase, and each is given out once."""

    def take(number):
        maker, got = NextID(key="orders", masters={client}), []
        while len(got) < 25:
            try:
                got.append(next(maker))
            except QuorumNotAchieved:  # another thread was faster
                continue
        same(got, sorted(got))
        return got

    taken = [number for got in in_threads(4, take) for number in got]
    same(len(set(taken)), 100)


hold(exclusion, extension, expiry, threads, ids)
