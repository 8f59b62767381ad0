"""Celery with this server as its result backend; its broker, which needs lists, is in memory. See run.py."""

import threading
import time

import redis
from celery import Celery, group
from celery.contrib.testing.worker import start_worker
from celery.exceptions import TimeoutError
from harness import fails, hold, same, url

app = Celery("tasks", broker="memory://", backend=url(2))
app.conf.update(
    broker_transport_options={"polling_interval": 0.02},
    result_expires=100,
    result_extended=True,
    result_backend_transport_options={"global_keyprefix": "app:"},
    worker_hijack_root_logger=False,
)
raw = redis.Redis.from_url(url(2))
gate = threading.Event()


@app.task
def add(a, b):
    return a + b


@app.task
def fail(text):
    raise ValueError(text)


@app.task
def gated():
    gate.wait(60)
    return "done"


def key(result):
    return f"app:celery-task-meta-{result.id}"


def results():
    """Each result is published on the channel of its task, and can be read again."""
    sent = [add.delay(n, n) for n in range(50)]
    same([result.get(timeout=20) for result in sent], [n + n for n in range(50)])
    same([app.AsyncResult(result.id).result for result in sent], [n + n for n in range(50)])
    same({result.state for result in sent}, {"SUCCESS"})
    same(sent[0].name.endswith("add"), True)
    same(all(0 < raw.ttl(key(result)) <= 100 for result in sent), True)


def waiting():
    result = gated.delay()
    fails(TimeoutError, lambda: result.get(timeout=0.1))
    same(raw.pubsub_numsub(key(result)), [(key(result).encode(), 1)])
    gate.set()
    same((result.get(timeout=20), result.successful()), ("done", True))


def failure():
    result = fail.delay("no paper")
    fails(ValueError, lambda: result.get(timeout=20), "no paper")
    same((result.state, "no paper" in result.traceback), ("FAILURE", True))


def groups():
    result = group(add.s(n, 1) for n in range(20))()
    same(result.get(timeout=20), [n + 1 for n in range(20)])
    result.save()
    same(app.GroupResult.restore(result.id).get(timeout=20), [n + 1 for n in range(20)])
    result.delete()
    same(app.GroupResult.restore(result.id), None)


def forget():
    result = add.delay(1, 1)
    same((result.get(timeout=20), raw.exists(key(result))), (2, 1))
    result.forget()
    same((raw.exists(key(result)), app.AsyncResult(result.id).state), (0, "PENDING"))


def expiry():
    app.backend.expires = 1
    app.backend.store_result("ends-soon", 5, "SUCCESS")
    same(app.AsyncResult("ends-soon").get(timeout=20), 5)
    time.sleep(1.1)
    same(app.AsyncResult("ends-soon").state, "PENDING")


with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False, loglevel="ERROR"):
    hold(results, waiting, failure, groups, forget, expiry)
