#!/usr/bin/env python3
"""Moves a Redis under write load to Esker and back, and compares both at rest: tests/moving/run.py ESKER [--keys N] [--seconds S]

1. A redis-server gets N keys with mixed times to live in two databases, and some hashes and lists.
2. A writer changes them with every kind of command that redis-server replicates for strings, until step 5.
3. `esker import --from REDIS --to ESKER --follow` copies and follows. It is killed once with SIGKILL, and started again
   with its --state.
4. The link of the replica is cut once: the source kills it. A source that is read by passes has none.
5. The writer stops, the import gets SIGINT, and must end with no differences.
6. This script compares all keys itself, without esker's own comparison.
7. The same back: from Esker under write load to an empty redis-server, by passes.

It needs Python 3 and redis-server 7.0 or newer (or valkey-server or kvrocks: --redis PROGRAM). Exit code 0 if nothing differs.
Kvrocks ignores SELECT, so only database 0 is used with it.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time


class Wire:
    """A RESP2 connection with pipelines."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.reader = self.socket.makefile("rb")

    def send(self, commands):
        text = bytearray()
        for words in commands:
            text += b"*%d\r\n" % len(words)
            for word in words:
                word = word if isinstance(word, bytes) else str(word).encode()
                text += b"$%d\r\n%s\r\n" % (len(word), word)
        self.socket.sendall(text)

    def answer(self):
        line = self.reader.readline()
        assert line.endswith(b"\r\n"), "the connection is lost"
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            return None if rest == b"-1" else self.reader.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        return int(rest) if kind == b":" else (RuntimeError(rest.decode()) if kind == b"-" else rest)

    def many(self, commands):
        self.send(commands)
        return [self.answer() for _ in commands]

    def one(self, *words):
        answer = self.many([words])[0]
        if isinstance(answer, RuntimeError):
            raise answer
        return answer


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(port, process):
    while True:
        assert process.poll() is None, "a server ended"
        try:
            if Wire(port).one("PING") == b"PONG":
                return
        except (OSError, AssertionError, RuntimeError):
            time.sleep(0.05)


def key(number):
    return f"key:{number}"


def options_of(random, number):
    """The expiry of a key: none, hours, or seconds, so that many keys expire while they are moved."""
    kind = number % 10
    if kind < 5:
        return []
    if kind < 8:
        return ["PX", random.randrange(3_600_000, 7_200_000)]
    return ["PX", random.randrange(2_000, 90_000)]


def databases_of(wire):
    """Returns the numbers of databases to use: database 0 alone if the server ignores SELECT."""
    refused = isinstance(wire.many([["SELECT", 2**31 - 1]])[0], RuntimeError)
    return range(16) if refused else range(1)


def load(port, keys):
    wire, draw = Wire(port), random.Random(1)
    for database in (3, 0) if 3 in databases_of(wire) else (0,):
        share = keys if database == 0 else keys // 10
        wire.one("SELECT", database)
        for first in range(0, share, 2000):
            numbers = range(first, min(first + 2000, share))
            wire.many(
                [["SET", key(n), draw.randbytes(draw.randrange(8, 120)), *options_of(draw, n)] for n in numbers]
            )
    wire.many([["SET", "empty", ""], ["SET", bytes(range(256)), draw.randbytes(5_000_000)]])
    wire.many([["HSET", f"hash:{n}", "f", n] for n in range(50)] + [["RPUSH", f"list:{n}", n] for n in range(30)])


def change(draw, keys):
    """A random command that changes a key."""
    k, other = key(draw.randrange(keys)), key(draw.randrange(keys))
    hot = f"hot:{draw.randrange(200)}"
    return draw.choice(
        [
            lambda: ["SET", k, draw.randbytes(40)],
            lambda: ["SET", k, draw.randbytes(40), "EX", draw.randrange(1, 100)],
            lambda: ["SET", k, draw.randbytes(30), "KEEPTTL"],
            lambda: ["SETEX", k, draw.randrange(1, 60), "short"],
            lambda: ["MSET", k, "a", other, "b"],
            lambda: ["DEL", k, other],
            lambda: ["EXPIRE", k, draw.randrange(1, 300)],
            lambda: ["PERSIST", k],
            lambda: ["GETEX", k, "EX", draw.randrange(2, 200)],
            lambda: ["INCRBY", "counter:" + hot, draw.randrange(1000)],
            lambda: ["APPEND", "text:" + hot, "x"],
            lambda: ["SET", "text:" + hot, ""],
            lambda: ["SETRANGE", k, draw.randrange(100), "part"],
            lambda: ["SETBIT", "bits:" + hot, draw.randrange(2000), draw.randrange(2)],
            lambda: ["RENAME", k, other],
            lambda: ["COPY", k, other, "REPLACE"],
            lambda: ["COPY", k, other, "DB", 3, "REPLACE"],
            lambda: ["MOVE", k, 5],
            lambda: ["BITOP", "OR", "bitop:" + hot, "bits:" + hot, k],
            lambda: ["EVAL", "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('INCR', KEYS[2])", 2, k, "n:" + hot, "s"],
        ]
    )()


def write(port, keys, rate, stop, with_types, with_databases):
    """Changes keys until `stop` is set, about `rate` commands a second."""
    wire, draw = Wire(port), random.Random(os.getpid())
    done = 0
    while not stop.is_set():
        commands = [change(draw, keys) for _ in range(50)]
        commands = [words for words in commands if with_databases or not ("DB" in words or words[0] == "MOVE")]
        if with_types:
            commands += [["HSET", f"hash:{draw.randrange(60)}", "f", 1], ["PFADD", f"hll:{draw.randrange(20)}", draw.random()]]
            commands += [["DEL", "swap"], ["SADD", "swap", 1], ["SINTERSTORE", key(draw.randrange(keys)), "swap"]]
        wire.many([["MULTI"], *commands[:5], ["EXEC"], *commands[5:]])
        done += len(commands)
        time.sleep(len(commands) / rate)


def all_of(port):
    """Returns all strings with their values and expiries."""
    wire, found = Wire(port), {}
    for database in databases_of(wire):
        wire.one("SELECT", database)
        cursor = b"0"
        while True:
            cursor, keys = wire.one("SCAN", cursor, "COUNT", 2000)
            answers = wire.many([words for k in keys for words in (["GET", k], ["PEXPIRETIME", k])])
            for k, value, expiry in zip(keys, answers[::2], answers[1::2]):
                if isinstance(value, bytes):
                    found[database, k] = (value, expiry)
            if cursor == b"0":
                break
    return found


def compare(one, other):
    """Compares two servers at rest. Keys that expire within two seconds may be gone in one of them."""
    first, second = all_of(one), all_of(other)
    soon = (time.time() + 2) * 1000
    lasts = lambda state: state[1] < 0 or state[1] > soon
    differ = [k for k in first.keys() | second.keys() if first.get(k) != second.get(k)]
    differ = [k for k in differ if any(k in at and lasts(at[k]) for at in (first, second))]
    assert not differ, f"{len(differ)} keys differ: " + str([(k, first.get(k), second.get(k)) for k in differ[:5]])
    print(f"this script compared {len(first)} keys itself: no differences")


class Import:
    """A running `esker import --from`."""

    def __init__(self, esker, source, target, log, *more):
        words = [esker, "import", "--from", str(source), "--to", str(target), "--follow", "--json", *more]
        self.log = open(log, "ab")
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self.log)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        began = time.time()
        output, _ = self.process.communicate(timeout=1800)
        print(f"caught up and compared in {time.time() - began:.1f} s: {output.decode().strip()}")
        log = pathlib.Path(self.log.name).read_text()
        assert self.process.returncode == 0, log
        assert json.loads(output)["verified"]["keys"] > 0, output
        return log


def under_load(port, keys, rate, with_types, with_databases, body):
    stop = multiprocessing.Event()
    writer = multiprocessing.Process(target=write, args=(port, keys, rate, stop, with_types, with_databases))
    writer.start()
    try:
        body()
        assert writer.is_alive(), "the writer failed"
    finally:
        stop.set()
        writer.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("esker")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=20, help="time under load after each step")
    parser.add_argument("--rate", type=int, default=5000, help="commands a second of the writer")
    parser.add_argument("--redis", default="redis-server")
    arguments = parser.parse_args()
    if not shutil.which(arguments.redis):
        print(f"SKIPPED: {arguments.redis} is not installed")
        return
    directory = tempfile.mkdtemp(prefix="esker-moving-")
    is_kvrocks = pathlib.Path(arguments.redis).name.startswith("kvrocks")
    processes = []

    def redis():
        port = free_port()
        words = [arguments.redis, "--port", str(port), "--save", "", "--dir", directory, "--repl-diskless-sync-delay", "2"]
        # So that the changes since the kill are still there, however slow this machine is.
        words += ["--repl-backlog-size", "256mb", "--client-output-buffer-limit", "replica 0 0 0"]
        if is_kvrocks:
            settings = pathlib.Path(f"{directory}/kvrocks-{port}.conf")
            settings.write_text(f"bind 127.0.0.1\nport {port}\ndir {directory}/kvrocks-{port}\nlog-dir stdout\n")
            words = [arguments.redis, "-c", str(settings)]
        processes.append(subprocess.Popen(words, stdout=subprocess.DEVNULL))
        wait_for(port, processes[-1])
        return port

    def esker():
        port = free_port()
        words = [arguments.esker, "serve", "--resp", f"127.0.0.1:{port}", "--dir", f"{directory}/store", "--log", "warn"]
        processes.append(subprocess.Popen(words, stdout=subprocess.DEVNULL))
        wait_for(port, processes[-1])
        return port

    try:
        source, target, back = redis(), esker(), redis()
        began = time.time()
        load(source, arguments.keys)
        print(f"loaded {arguments.keys} keys in {time.time() - began:.1f} s")
        log, state = f"{directory}/import.log", f"{directory}/state"
        running = None

        def has_snapshot():
            return os.path.exists(state) and "offset" in json.loads(pathlib.Path(state).read_text())

        def has_half():
            return Wire(target).one("DBSIZE") > arguments.keys / 2

        def there():
            nonlocal running
            began = time.time()
            running = Import(arguments.esker, source, target, log, "--state", state)
            # Passes are killed in the first one.
            while not (has_half() if is_kvrocks else has_snapshot()):
                assert running.process.poll() is None, pathlib.Path(log).read_text()
                time.sleep(0.1)
            print(f"{'half of the keys were' if is_kvrocks else 'the snapshot was'} copied in {time.time() - began:.1f} s")
            time.sleep(0 if is_kvrocks else arguments.seconds / 2)
            running.process.kill()
            running.process.wait()
            time.sleep(1)
            running = Import(arguments.esker, source, target, log, "--state", state)
            time.sleep(arguments.seconds / 2)
            if is_kvrocks:
                print("SKIPPED: passes have no link of a replica to cut")
            else:
                Wire(source).one("CLIENT", "KILL", "TYPE", "replica")
            time.sleep(arguments.seconds / 2)

        under_load(source, arguments.keys, arguments.rate, True, not is_kvrocks, there)
        log_text = running.end()
        assert is_kvrocks or "connecting again" in log_text, "the link was not cut"
        compare(source, target)

        def and_back():
            nonlocal running
            running = Import(arguments.esker, target, back, log)
            time.sleep(arguments.seconds)

        under_load(target, arguments.keys, arguments.rate, False, not is_kvrocks, and_back)
        running.end()
        compare(target, back)
        print("moved there and back: no differences")
    finally:
        for process in processes:
            process.kill()
            process.wait()
        shutil.rmtree(directory)


if __name__ == "__main__":
    sys.exit(main())
