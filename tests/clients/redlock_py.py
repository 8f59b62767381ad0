"""redlock-py: a lock has one holder, is released by its holder alone, and expires. See run.py."""

import time

import redis
from harness import hold, in_threads, same, url
from redlock import Lock, Redlock

client = redis.Redis.from_url(url())
manager = Redlock([client], retry_count=1)


def exclusion():
    held = manager.lock("app:lock", 30_000)
    same((held.resource, client.get("app:lock")), ("app:lock", held.key))
    same(manager.lock("app:lock", 30_000), False)
    manager.unlock(held)
    same(client.exists("app:lock"), 0)


def token():
    held = manager.lock("app:lock", 30_000)
    manager.unlock(Lock(held.validity, held.resource, b"of somebody else"))
    same(client.get("app:lock"), held.key)
    manager.unlock(held)
    same(client.exists("app:lock"), 0)


def expiry():
    held = manager.lock("app:lock", 200)
    same(0 < held.validity < 200, True)
    time.sleep(0.25)
    later = manager.lock("app:lock", 30_000)
    same(bool(later), True)
    manager.unlock(held)  # an expired lock does not release a later one
    same(client.get("app:lock"), later.key)
    manager.unlock(later)


def threads():
    patient, seen = Redlock([client], retry_count=10_000, retry_delay=0.01), []

    def enter(number):
        for _ in range(10):
            held = patient.lock("app:lock", 30_000)
            value = len(seen)
            time.sleep(0.001)
            seen.append(value)
            patient.unlock(held)

    in_threads(4, enter)
    same(seen, list(range(40)))


hold(exclusion, token, expiry, threads)
