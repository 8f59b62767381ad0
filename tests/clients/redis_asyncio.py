"""redis-py's asyncio client: tasks, pipelines, locks, scripts and publish/subscribe. See run.py."""

import asyncio

import redis.asyncio
from harness import same, url


async def pipeline(client):
    async with client.pipeline(transaction=False) as pipe:
        for n in range(1000):
            pipe.set(f"app:pipe:{n}", n).get(f"app:pipe:{n}")
        same(await pipe.execute(), [reply for n in range(1000) for reply in (True, b"%d" % n)])


async def tasks(client):
    async def add():
        for _ in range(25):
            await client.incr("app:tasks")

    await asyncio.gather(*(add() for _ in range(20)))
    same(await client.get("app:tasks"), b"500")


async def transaction(client):
    async def add_one(pipe):
        value = int(await pipe.get("app:watched") or 0)
        pipe.multi()
        pipe.set("app:watched", value + 1)

    async def add():
        for _ in range(10):
            await client.transaction(add_one, "app:watched")

    await asyncio.gather(*(add() for _ in range(4)))
    same(await client.get("app:watched"), b"40")


async def lock(client):
    inside, seen = 0, []

    async def enter():
        nonlocal inside
        async with client.lock("app:lock", timeout=30, sleep=0.005):
            inside += 1
            await asyncio.sleep(0.001)
            seen.append(inside)
            inside -= 1

    await asyncio.gather(*(enter() for _ in range(20)))
    same(seen, [1] * 20)
    same(await client.exists("app:lock"), 0)


async def scripts(client):
    limit = client.register_script("local n = redis.call('INCR', KEYS[1]) return {n, ARGV[1]}")
    async with client.pipeline(transaction=True) as pipe:
        for n in range(3):
            await limit(keys=["app:limit"], args=[n], client=pipe)
        same(await pipe.execute(), [[1, b"0"], [2, b"1"], [3, b"2"]])


async def publish(client):
    async with client.pubsub() as listener:
        await listener.subscribe("app:news")
        same((await listener.get_message(timeout=5))["type"], "subscribe")
        for n in range(10):
            same(await client.publish("app:news", n), 1)
        got = [await listener.get_message(timeout=5) for _ in range(10)]
        same([message["data"] for message in got], [b"%d" % n for n in range(10)])


async def main():
    async with redis.asyncio.from_url(url(), max_connections=50) as client:
        for check in (pipeline, tasks, transaction, lock, scripts, publish):
            await check(client)
            print("ok", check.__name__, flush=True)


asyncio.run(main())
