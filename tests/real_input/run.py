#!/usr/bin/env python3
"""Loads every stanza of Debian's package index, kills the server at the last reply, and reads every one back.

    tests/real_input/run.py target/release/esker
    tests/real_input/run.py target/release/esker --config all
    tests/real_input/run.py target/release/esker --config two-tier -- --durability process --memory 256m

The key is a package's name, the value its stanza; of repeated names the last stanza counts. `redis-cli --pipe` loads the
stanzas if it is installed, else the small client below. The server gets SIGKILL immediately after the last reply, so
with `--durability sync` or `process` (not `periodic`, not `none`) every stanza must exist after the restart. SIGKILL
proves nothing about power failures, because the kernel outlives the process.

Needs Python 3.9 and `apt-cache` with package lists; nothing else. Prints one line per configuration. Exits with 1
if a configuration failed, and with 2 if the test could not run.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

CONFIGURATIONS = {
    "directory": ["--dir", "{tmp}/store"],
    "two-tier": ["--fast", "{tmp}/fast", "--capacity", "{tmp}/capacity"],
    "capacity-only": ["--capacity", "{tmp}/capacity"],
    "fast-only": ["--fast", "{tmp}/fast"],
}
GETS_PER_PIPELINE = 500
START_SECONDS_MAX = 120
SHOWN_FAILURES_MAX = 10


def cannot(why):
    print(f"real_input: {why}", file=sys.stderr)
    sys.exit(2)


def stanzas():
    """Returns (name, stanza) of every package known to apt, in its order."""
    if not shutil.which("apt-cache"):
        cannot("there is no apt-cache; run this on Debian or Ubuntu, or in a container of one (apt-get install apt)")
    dump = subprocess.run(["apt-cache", "dumpavail"], stdout=subprocess.PIPE, check=True).stdout
    found = []
    for stanza in dump.split(b"\n\n"):
        if stanza.startswith(b"Package: "):
            found.append((stanza[len(b"Package: ") : stanza.index(b"\n")].strip(), stanza))
    if not found:
        cannot("apt-cache knows no packages; run apt-get update first")
    return found


def command(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Client:
    """A minimal RESP2 client."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.replies = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data)

    def reply(self):
        line = self.replies.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            length = int(rest)
            return None if length < 0 else self.replies.read(length + 2)[:-2]
        if kind == b":":
            return int(rest)
        if kind == b"-":
            return RuntimeError(rest.decode(errors="replace"))
        return rest


class Server:
    def __init__(self, binary, flags):
        command_line = [binary, "serve", "--resp", "127.0.0.1:0", *flags]
        self.process = subprocess.Popen(command_line, stdout=subprocess.PIPE)
        signal.signal(signal.SIGALRM, lambda *_: self.process.kill())
        signal.alarm(START_SECONDS_MAX)
        self.ready = self.process.stdout.readline().decode().strip()
        signal.alarm(0)
        if not self.ready.startswith("ready"):
            code = self.process.wait()
            raise RuntimeError(f"the server did not become ready (exit code {code}): {' '.join(command_line)}")
        words = dict(word.split("=", 1) for word in self.ready.split() if "=" in word)
        self.address = words["resp"].split(",")[0]

    def stop(self, number):
        self.process.send_signal(number)
        return self.process.wait(timeout=60)


def load(address, pairs, loader):
    """Sends all pairs, and waits for the last reply. Returns the number of error replies."""
    if loader == "redis-cli":
        host, port = address.rsplit(":", 1)
        pipe = subprocess.Popen(
            ["redis-cli", "-h", host, "-p", port, "--pipe"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for name, stanza in pairs:
            pipe.stdin.write(command(b"SET", name, stanza))
        pipe.stdin.close()
        said = pipe.stdout.read().decode()
        if pipe.wait() != 0 or f"errors: 0, replies: {len(pairs)}" not in said:
            print(said, file=sys.stderr)
            return max(1, len(pairs) - said.count("OK"))
        return 0
    client = Client(address)
    errors = 0
    for start in range(0, len(pairs), GETS_PER_PIPELINE):
        part = pairs[start : start + GETS_PER_PIPELINE]
        client.send(b"".join(command(b"SET", name, stanza) for name, stanza in part))
        errors += sum(client.reply() != b"OK" for _ in part)
    return errors


class Tally:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, good, what):
        if good:
            self.passed += 1
            return
        self.failed += 1
        if self.failed <= SHOWN_FAILURES_MAX:
            print(f"FAILED {what()}", file=sys.stderr)


def compare(address, expected, tally):
    client = Client(address)
    client.send(command(b"DBSIZE"))
    keys = client.reply()
    tally.check(keys == len(expected), lambda: f"DBSIZE is {keys}, expected {len(expected)}")
    names = list(expected)
    for start in range(0, len(names), GETS_PER_PIPELINE):
        part = names[start : start + GETS_PER_PIPELINE]
        client.send(b"".join(command(b"GET", name) for name in part))
        for name in part:
            found = client.reply()
            tally.check(found == expected[name], lambda: f"{name.decode()}: {describe(found, expected[name])}")


def describe(found, expected):
    if isinstance(found, bytes):
        return f"{len(found)} other bytes than the {len(expected)} written"
    return "is gone" if found is None else str(found)


def run(binary, name, flags, pairs, loader, tmp):
    expected = dict(pairs)
    tally = Tally()
    places = [flag.format(tmp=tmp) for flag in CONFIGURATIONS[name]] + flags

    server = Server(binary, places)
    started = time.monotonic()
    try:
        errors = load(server.address, pairs, loader)
    finally:
        server.stop(signal.SIGKILL)
    seconds = time.monotonic() - started
    tally.check(errors == 0, lambda: f"{errors} of {len(pairs)} SETs were not OK")

    # After the kill, and once more after a regular stop.
    for end in (signal.SIGTERM, signal.SIGTERM):
        server = Server(binary, places)
        print(f"{name}: {server.ready}", file=sys.stderr)
        try:
            compare(server.address, expected, tally)
        finally:
            code = server.stop(end)
        tally.check(code == 0, lambda: f"exit code {code} after SIGTERM")

    rate = len(pairs) / seconds
    print(
        f"{name}: {tally.passed} passed, {tally.failed} failed "
        f"({len(pairs)} stanzas, {len(expected)} keys, loaded by {loader} at {rate:.0f}/s)"
    )
    return tally.failed == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="Flags after -- go to esker serve.")
    parser.add_argument("binary", help="the esker command, such as target/release/esker")
    parser.add_argument("--config", choices=[*CONFIGURATIONS, "all"], default="directory")
    parser.add_argument("--loader", choices=["auto", "redis-cli", "own"], default="auto")
    parser.add_argument("--tmp", help="where stores are made, and removed if all is well (default: the system's)")
    ours, flags = sys.argv[1:], []
    if "--" in ours:
        at = ours.index("--")
        ours, flags = ours[:at], ours[at + 1 :]
    arguments = parser.parse_args(ours)
    if not os.access(arguments.binary, os.X_OK):
        cannot(f"{arguments.binary} is not there; build it with cargo build --release -p esker-cli")
    loader = arguments.loader
    if loader == "auto":
        loader = "redis-cli" if shutil.which("redis-cli") else "own"

    pairs = stanzas()
    good = True
    for name in CONFIGURATIONS if arguments.config == "all" else [arguments.config]:
        tmp = tempfile.mkdtemp(prefix="esker-real-input-", dir=arguments.tmp)
        try:
            one = run(arguments.binary, name, flags, pairs, loader, tmp)
        except (RuntimeError, OSError) as error:
            print(f"{name}: 0 passed, 1 failed ({error})")
            one = False
        if one:
            shutil.rmtree(tmp)
        else:
            print(f"{name}: the store is left in {tmp}", file=sys.stderr)
        good = good and one
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
