"""redis_exporter, the source of Prometheus metrics, as a user with no right but monitor. See run.py.

EXPORTER is the program, WATCHER that user."""

import os
import re
import subprocess
import time
import urllib.error
import urllib.request

import redis
from harness import authority, hold, password, same, url
from server import free_port

WAIT_SECONDS_MAX = 20
client = redis.Redis.from_url(url())
at = f"127.0.0.1:{free_port()}"
command = [os.environ["EXPORTER"], "-web.listen-address", at, "-include-config-metrics", "-export-client-list"]
command += ["-redis.addr", f"{'rediss' if authority else 'redis'}://{os.environ['HOST']}:{os.environ['PORT']}"]
command += ["-redis.user", os.environ["WATCHER"]] if os.environ["WATCHER"] else []
command += ["-redis.password", password] if password else []
command += ["-tls-ca-cert-file", authority] if authority else []


def scrape():
    """Returns the value of every metric, by name and labels as text."""
    until = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        try:
            with urllib.request.urlopen(f"http://{at}/metrics") as page:
                text = page.read().decode()
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
            continue
        pairs = re.findall(r"^(redis_\S*?(?:\{.*\})?) (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in pairs}


def healthy():
    found = scrape()
    same((found["redis_up"], found['redis_exporter_last_scrape_error{err=""}']), (1, 0))
    same([name for name in found if name.startswith("redis_exporter_last_scrape_error") and found[name] != 0], [])
    same(found["redis_uptime_in_seconds"] >= 0, True)
    same(sum(name.startswith("redis_connected_clients_details") for name in found) >= 1, True)
    same((found["redis_config_maxclients"] > 0, found["redis_slowlog_length"] >= 0), (True, True))


def counts():
    for database, keys in ((0, 300), (3, 20), (15, 1)):
        other = redis.Redis.from_url(url(database))
        other.mset({f"app:{n}": "x" for n in range(keys)})
    other.expire("app:0", 100)
    found = scrape()
    same([found[f'redis_db_keys{{db="db{n}"}}'] for n in (0, 3, 7, 15)], [300, 20, 0, 1])
    same([found[f'redis_db_keys_expiring{{db="db{n}"}}'] for n in (0, 3, 15)], [0, 0, 1])
    same(90 < found['redis_db_avg_ttl_seconds{db="db15"}'] <= 100, True)


def rates():
    before = scrape()
    for _ in range(10):
        client.get("app:1")
        client.get("app:absent")
    after = scrape()
    grown = {name: after[name] - before.get(name, 0) for name in after}
    same((grown["redis_keyspace_hits_total"], grown["redis_keyspace_misses_total"]), (10, 10))
    same(grown['redis_commands_total{cmd="get"}'], 20)
    same(grown["redis_commands_processed_total"] >= 20, True)
    same(grown["redis_net_input_bytes_total"] > 0, True)


def silence():
    """The exporter logged no warning and no error."""
    exporter.terminate()
    told = exporter.communicate()[0]
    same(("level=info" in told, [line for line in told.splitlines() if "level=info" not in line]), (True, []))


exporter = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
try:
    hold(healthy, counts, rates, silence)
finally:
    exporter.kill()
