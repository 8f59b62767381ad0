#!/usr/bin/env python3
"""Kills a nearly full server under load, again and again, and checks every key against its acknowledged writes.

    python3 tests/kills/run.py target/release/esker --kills 500

Needs Python 3 and nothing else. The kills are distributed over one tier and two, at durability `sync` and `process`, and one
tier with coalescing. Each client has its own keys and one command in flight, so after a kill a key has its last acknowledged
state, or the state after the command in flight; any other state is printed and ends the run with exit code 1. `--seed` replays
the order of the commands, but not the times of the kills.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

CLIENTS = 6
KEYS_EACH = 500
CONFIGURATIONS = {
    "one tier, sync": (["--capacity-limit", "130m"], "sync"),
    "one tier, process": (["--capacity-limit", "130m"], "process"),
    "one tier, process, coalescing": (["--capacity-limit", "130m", "--coalesce-for", "2s"], "process"),
    "two tiers, sync": (["--fast-limit", "130m", "--capacity-limit", "130m", "--iu", "64k"], "sync"),
    "two tiers, process": (["--fast-limit", "130m", "--capacity-limit", "130m", "--iu", "64k"], "process"),
}


class Gone(Exception):
    """The server has ended."""


class Client:
    """One connection, one command at a time."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.stream = self.socket.makefile("rb")

    def call(self, *arguments):
        parts = [b"*%d\r\n" % len(arguments)]
        for argument in arguments:
            parts.append(b"$%d\r\n%s\r\n" % (len(argument), argument))
        try:
            self.socket.sendall(b"".join(parts))
            return self.answer()
        except OSError as error:
            raise Gone() from error

    def answer(self):
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise Gone()
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            length = int(rest)
            if length < 0:
                return None
            body = self.stream.read(length + 2)
            if len(body) < length + 2:
                raise Gone()
            return body[:-2]
        if kind == b":":
            return int(rest)
        if kind == b"-":
            return RuntimeError(rest.decode())
        return rest


def value(key, version):
    """Returns the value of a version of a key: some hundreds to some hundred thousand bytes, derived from both."""
    seed = hashlib.sha256(b"%s %d" % (key, version)).digest()
    sizes = (300, 2_000, 20_000, 60_000, 150_000)
    length = sizes[seed[0] % len(sizes)] + seed[1]
    return (b"%d " % version + seed * (length // 32 + 1))[:length]


class Writer(threading.Thread):
    """Sets and deletes its own keys until the server ends."""

    def __init__(self, port, model, seed):
        super().__init__(daemon=True)
        self.port, self.model, self.random = port, model, random.Random(seed)
        self.acknowledged = self.refused = 0
        self.problem = None

    def run(self):
        try:
            client = Client(self.port)
            while True:
                self.step(client)
        except (Gone, OSError):
            return

    def step(self, client):
        key = self.random.choice(list(self.model))
        state = self.model[key]
        version = 0 if self.random.random() < 0.3 else state["next"]
        state["next"] += 1
        state["under_way"] = version
        if version:
            answer = client.call(b"SET", key, value(key, version))
        else:
            answer = client.call(b"DEL", key)
        state["under_way"] = None
        if isinstance(answer, RuntimeError):
            self.refused += 1
            if version == 0:
                self.problem = f"a delete of {key} was refused: {answer}"
            elif "full" not in str(answer) and not str(answer).startswith("OOM"):
                self.problem = f"a put was refused: {answer}"
            return
        state["acknowledged"] = version
        self.acknowledged += 1


def launch(binary, directory, arguments, durability):
    """Starts the server without waiting. Returns its process."""
    command = [binary, "serve", "--resp", "127.0.0.1:0", "--memory", "192m", "--durability", durability]
    if "--fast-limit" in arguments:
        command += ["--fast", os.path.join(directory, "fast"), "--capacity", os.path.join(directory, "capacity")]
    else:
        command += ["--dir", os.path.join(directory, "store")]
    log = open(os.path.join(directory, "log"), "ab")
    return subprocess.Popen(command + arguments, stdout=subprocess.PIPE, stderr=log)


def start(binary, directory, arguments, durability):
    """Starts the server and waits until it is ready. Returns its process and its port."""
    process = launch(binary, directory, arguments, durability)
    line = process.stdout.readline().decode()
    if "127.0.0.1:" not in line:
        process.kill()
        sys.exit(f"the server did not start: {line!r}; see {directory}/log")
    port = int(line.split("127.0.0.1:")[1].split()[0].rstrip(",;."))
    return process, port


def version_of(key, found):
    """Returns the version of a found value; None if it is invalid."""
    if found is None:
        return 0
    try:
        version = int(found.split(b" ", 1)[0])
    except ValueError:
        return None
    return version if value(key, version) == found else None


def check(port, models):
    """Compares every key with its allowed states. Returns the problems, and takes the found states as the expected ones."""
    client, wrong = Client(port), []
    for model in models:
        for key, state in model.items():
            found = version_of(key, client.call(b"GET", key))
            allowed = {state["acknowledged"], state["under_way"]} - {None}
            if found not in allowed:
                wrong.append(f"{key!r} is version {found}, and should be one of {sorted(allowed)}")
            state["acknowledged"], state["under_way"] = found, None
    return wrong


def works_again(port, model):
    """Checks that deletes work on a full store, and puts work after them."""
    client, problems = Client(port), []
    for key, state in list(model.items())[:40]:
        answer = client.call(b"DEL", key)
        if isinstance(answer, RuntimeError):
            problems.append(f"a delete was refused: {answer}")
        else:
            state["acknowledged"] = 0
    key, state = next(iter(model.items()))
    deadline = time.monotonic() + 30
    while True:
        version = state["next"]
        state["next"] += 1
        answer = client.call(b"SET", key, value(key, version))
        if not isinstance(answer, RuntimeError):
            state["acknowledged"] = version
            return problems
        if time.monotonic() > deadline:
            return problems + [f"puts do not work again after deletes: {answer}"]
        time.sleep(0.1)


def kill_alive(process):
    """Kills a server. Returns a problem if it had already ended by itself."""
    process.send_signal(signal.SIGKILL)
    code = process.wait()
    return [] if code == -signal.SIGKILL else [f"the server had ended by itself with {code} when it was to be killed"]


def run(name, binary, kills, seed, keep):
    arguments, durability = CONFIGURATIONS[name]
    directory = tempfile.mkdtemp(prefix="esker-kills-")
    dice = random.Random(f"{seed} {name}")
    models = [
        {b"c%d-%d" % (c, k): {"acknowledged": 0, "under_way": None, "next": 1} for k in range(KEYS_EACH)}
        for c in range(CLIENTS)
    ]
    acknowledged = refused = 0
    problems = []
    for kill in range(kills):
        process, port = start(binary, directory, arguments, durability)
        problems += check(port, models)
        if kill % 10 == 9:
            problems += works_again(port, models[kill // 10 % CLIENTS])
        writers = [Writer(port, model, dice.random()) for model in models]
        for writer in writers:
            writer.start()
        time.sleep(dice.uniform(0.02, 0.5))
        problems += kill_alive(process)
        for writer in writers:
            writer.join()
            acknowledged += writer.acknowledged
            refused += writer.refused
            problems += [writer.problem] if writer.problem else []
        if kill % 4 == 3:
            # Another kill while it opens.
            opening = launch(binary, directory, arguments, durability)
            time.sleep(dice.uniform(0, 0.15))
            problems += kill_alive(opening)
        if problems:
            break
    process, port = start(binary, directory, arguments, durability)
    problems += check(port, models)
    problems += works_again(port, models[0])
    process.send_signal(signal.SIGTERM)
    process.wait()
    print(f"{name}: {kill + 1} kills, {acknowledged} writes acknowledged, {refused} refused, {len(problems)} wrong", flush=True)
    for problem in problems[:20]:
        print("  " + problem)
    if problems or keep:
        print(f"  left in {directory}")
    else:
        shutil.rmtree(directory)
    return not problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--kills", type=int, default=20, help="in all, shared out among the configurations")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only", choices=CONFIGURATIONS, help="one configuration")
    parser.add_argument("--keep", action="store_true", help="keep the stores")
    asked = parser.parse_args()
    names = [asked.only] if asked.only else list(CONFIGURATIONS)
    each = -(-asked.kills // len(names))
    print(f"replay with: --seed {asked.seed} --kills {asked.kills}", flush=True)
    sound = [run(name, asked.binary, each, asked.seed, asked.keep) for name in names]
    sys.exit(0 if all(sound) else 1)


if __name__ == "__main__":
    main()
