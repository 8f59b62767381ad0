#!/usr/bin/env python3
"""Three nodes as processes in network namespaces, faults of many kinds, and clients whose histories are checked.

    python3 tests/cluster/faults.py target/release/esker --seconds 120 [--seed N] [--faults kill,stop,cut,...] [--porcupine]

    kill, restart    SIGKILL, and SIGTERM, then another start
    stop             SIGSTOP for a while
    cut, isolate     a node hears nothing of another one; a node is cut off in both directions
    clock, rate      a start with another time of day, by up to an hour; a start with a clock that is up to 4 % too fast or slow
    full             a node's file system has no room for a while
    rot              bytes of a node's files are flipped; after a while it is replaced by an empty node

Needs root, Python 3, iproute2 and nftables; `clock` and `rate` also need faketime, `full` and `rot` need loop devices and
mkfs.ext4. Clients append tokens to lists with APPEND and read them with GET, as clients of Redis Cluster do: they follow MOVED,
and repeat after CLUSTERDOWN and TRYAGAIN alone. Each token is appended once. In the end, and for each read:

* an acknowledged token is in the list exactly once; one whose outcome is open at most once; a refused one never;
* a list that was read is a beginning of the final one, so nothing was reordered, lost or undone;
* a read that began after a token was acknowledged, or after another read of it had ended, shows it: no read is stale.

Other clients SET, GET, DEL and INCR a few registers. With `--porcupine` (needs Go) their histories are checked by porcupine, with
the program in tests/porcupine.

Prints the first violation and ends with 1, or one line of figures.
"""

import argparse
import glob
import json
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

NODES = 3
KEYS = 24
CLIENTS = 12
# As tests/porcupine has them: registers, and the distance of values that are set.
REGISTERS = 6
APART = 1_000_000
REGISTER_CLIENTS = 3
REGISTER_PAUSE_S = 0.05
DISK_MIB = 1024
ROTTEN_BYTES = 200
FAULTS = ("kill", "restart", "stop", "cut", "isolate", "clock", "rate", "full", "rot")
FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
HERE = os.path.dirname(os.path.abspath(__file__))


def run(*words, check=True):
    return subprocess.run(words, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


class Network:
    """A bridge with a namespace for each node; rules of nftables on the bridge cut single directions silently."""

    def __init__(self, count=NODES):
        self.count = count
        self.down()
        run("ip", "link", "add", "eskbr", "type", "bridge")
        run("ip", "addr", "add", "10.78.0.254/24", "dev", "eskbr")
        run("ip", "link", "set", "eskbr", "up")
        for node in range(1, self.count + 1):
            run("ip", "netns", "add", f"esk{node}")
            run("ip", "link", "add", f"eskv{node}", "type", "veth", "peer", "name", "eth0", "netns", f"esk{node}")
            run("ip", "link", "set", f"eskv{node}", "master", "eskbr", "up")
            inside = ["ip", "netns", "exec", f"esk{node}", "ip"]
            run(*inside, "addr", "add", f"10.78.0.{node}/24", "dev", "eth0")
            run(*inside, "link", "set", "eth0", "up")
            run(*inside, "link", "set", "lo", "up")
        run("nft", "add", "table", "bridge", "esk")
        run("nft", "add chain bridge esk f { type filter hook forward priority 0; }")

    def cut(self, hears_not, of):
        """Node `hears_not` receives nothing of node `of`."""
        run("nft", "add", "rule", "bridge", "esk", "f", "ip", "saddr", f"10.78.0.{of}", "ip", "daddr", f"10.78.0.{hears_not}", "drop")

    def heal(self):
        run("nft", "flush", "chain", "bridge", "esk", "f")

    def down(self):
        for node in range(1, self.count + 1):
            run("ip", "netns", "del", f"esk{node}", check=False)
            run("ip", "link", "del", f"eskv{node}", check=False)
        run("ip", "link", "del", "eskbr", check=False)
        run("nft", "delete", "table", "bridge", "esk", check=False)


class Node:
    def __init__(self, number, binary, directory, count=NODES, options=("--capacity-limit", "2g")):
        self.count, self.options = count, options
        self.number, self.binary, self.directory, self.process = number, binary, directory, None
        self.address = f"10.78.0.{number}:6379"
        self.store = os.path.join(directory, f"node{number}")
        self.log, self.started_at = self.store + ".log", 0
        self.faketime, self.is_mounted, self.is_founder = None, False, number == 1

    def start(self):
        own = f"10.78.0.{self.number}:16379"
        words = ["ip", "netns", "exec", f"esk{self.number}"]
        if self.faketime:
            # Not the program `faketime`, which would be between this one and the server.
            words += ["env", f"LD_PRELOAD={FAKETIME[0]}", f"FAKETIME={self.faketime}"]
        store = os.path.join(self.store, "store")
        words += [self.binary, "serve", "--dir", store, "--resp", self.address, "--allow-unauthenticated"]
        words += ["--cluster", own, "--cluster-allow-plain", "--cluster-secret", "s", "--memory", "256m", *self.options]
        if not self.is_founder or os.path.exists(store):
            words += ["--join", ",".join(f"10.78.0.{other}:16379" for other in range(1, self.count + 1) if other != self.number)]
        else:
            words += ["--cluster-new"]
        os.makedirs(self.store, exist_ok=True)
        log = open(self.log, "a")
        self.started_at = log.tell()
        # `ip` and `env` exec the server, so its number is that of the process.
        self.process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)

    def mount(self):
        """Gives the node a file system of its own."""
        image = self.store + ".image"
        run("truncate", "-s", f"{DISK_MIB}M", image)
        run("mkfs.ext4", "-q", "-m", "0", image)
        os.makedirs(self.store, exist_ok=True)
        run("mount", "-o", "loop", image, self.store)
        self.is_mounted = True

    def unmount(self):
        if self.is_mounted:
            run("umount", self.store, check=False)

    def fill(self):
        """Leaves no room in the node's file system."""
        with open(os.path.join(self.store, "ballast"), "wb") as ballast:
            for step in (1 << 20, 1 << 12):
                try:
                    while True:
                        os.posix_fallocate(ballast.fileno(), ballast.seek(0, os.SEEK_END), step)
                except OSError:
                    pass  # no room for another step

    def empty(self):
        os.remove(os.path.join(self.store, "ballast"))

    def rot(self, chooser):
        """Flips bytes that are not zero, wherever they lie."""
        files = [os.path.join(at, name) for at, _, names in os.walk(os.path.join(self.store, "store")) for name in names]
        files = [name for name in files if os.path.isfile(name) and os.path.getsize(name) > 0]
        flipped, tries = 0, 0
        while flipped < ROTTEN_BYTES and tries < 200 * ROTTEN_BYTES:
            tries += 1
            with open(chooser.choice(files), "r+b") as file:
                at = chooser.randrange(os.path.getsize(file.name))
                file.seek(at)
                byte = file.read(1)[0]
                if byte != 0:
                    file.seek(at)
                    file.write(bytes([byte ^ 1 << chooser.randrange(8)]))
                    flipped += 1
        return flipped

    def wipe(self):
        shutil.rmtree(os.path.join(self.store, "store"))
        self.is_founder = False

    def send(self, what):
        try:
            os.killpg(self.process.pid, what)
        except ProcessLookupError:
            pass

    def serves(self):
        """Returns true if the node has said since its start that it is ready. Earlier it ends at once with SIGTERM."""
        with open(self.log) as log:
            log.seek(self.started_at)
            return any(line.startswith("ready") for line in log)

    def kill(self):
        self.send(signal.SIGKILL)
        self.process.wait()

    def end(self):
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            return "did not end within 60 s after SIGTERM"


class Lost(Exception):
    """The connection ended, or no answer came: the outcome is open."""


class Client:
    def __init__(self, nodes):
        self.addresses, self.connections = [node.address for node in nodes], {}
        self.at = random.choice(self.addresses)

    def ask_at(self, address, words):
        try:
            stream = self.connections.get(address)
            if stream is None:
                host, port = address.rsplit(":", 1)
                connection = socket.create_connection((host, int(port)), timeout=1)
                connection.settimeout(8)
                stream = self.connections[address] = connection.makefile("rwb")
        except OSError:
            return b"-CLUSTERDOWN no connection"
        try:
            parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
            stream.write(b"".join(parts))
            stream.flush()
            line = stream.readline()
            if not line.endswith(b"\r\n"):
                raise OSError("ended")
            if line[:1] != b"$":
                return line[:-2]
            if line == b"$-1\r\n":
                return None
            value = stream.read(int(line[1:-2]) + 2)
            if not value.endswith(b"\r\n"):
                raise OSError("ended")
            return b"$" + value[:-2]
        except OSError as error:
            self.connections.pop(address, None)
            raise Lost() from error

    def ask(self, words, until):
        """Returns the answer; `Lost` if the outcome is open."""
        while True:
            answer = self.ask_at(self.at, words)
            if answer is None or answer[:1] != b"-":
                return answer
            if answer.startswith(b"-MOVED"):
                self.at = answer.split(b" ")[2].decode()
                continue
            if answer.startswith((b"-CLUSTERDOWN", b"-TRYAGAIN", b"-LOADING", b"-MASTERDOWN")) and time.monotonic() < until:
                time.sleep(0.05)
                self.at = random.choice(self.addresses)
                continue
            if answer.startswith(b"-UNCERTAIN"):
                raise Lost()
            return answer


class History:
    def __init__(self, prefix="list", count=KEYS, pause_s=0):
        self.keys, self.pause_s = [b"%s:%d" % (prefix.encode(), number) for number in range(count)], pause_s
        self.lock = threading.Lock()
        self.acknowledged = {}  # token: (key, time of the answer)
        self.open, self.refused = {}, {}
        self.reads = []  # key, began, ended, list
        self.registers = []  # operations for porcupine
        self.errors = {}

    def failed(self, answer):
        with self.lock:
            self.errors[answer] = self.errors.get(answer, 0) + 1


def work(number, nodes, history, stop):
    client, count = Client(nodes), 0
    chooser = random.Random(number)
    while not stop.wait(chooser.uniform(0, 2 * history.pause_s)):
        key = chooser.choice(history.keys)
        until = time.monotonic() + 30
        began = time.monotonic()
        if chooser.random() < 0.5:
            token = b"%d.%d" % (number, count)
            count += 1
            try:
                answer = client.ask([b"APPEND", key, b"," + token], until)
            except Lost:
                with history.lock:
                    history.open[token] = key
                continue
            with history.lock:
                if answer is not None and answer[:1] == b":":
                    history.acknowledged[token] = (key, time.monotonic())
                    continue
                history.refused[token] = key
            history.failed(answer)
        else:
            try:
                answer = client.ask([b"GET", key], until)
            except Lost:
                continue
            ended = time.monotonic()
            if answer is not None and answer[:1] != b"$":
                history.failed(answer)
                continue
            with history.lock:
                history.reads.append((key, began, ended, b"" if answer is None else answer[1:]))


def choose_register_operation(chooser, value):
    """Returns words of a command, and its step as tests/porcupine has it."""
    key = chooser.randrange(REGISTERS)
    action = chooser.choice(["get", "get", "set", "set", "incr", "del"])
    words = [action.upper().encode(), b"register:%d" % key]
    step = {"key": key, "action": action}
    if action == "set":
        words, step["value"] = [*words, b"%d" % value], value
    return words, step


def reply_of(action, answer):
    """Returns an answer as tests/porcupine has it; None if it is an error."""
    if action == "get" and (answer is None or answer[:1] == b"$"):
        return {"value": None if answer is None else int(answer[1:])}
    if action == "set" and answer == b"+OK":
        return "ok"
    if action in ("del", "incr") and answer[:1] == b":":
        return {"number": int(answer[1:])}
    return None


def work_on_registers(number, nodes, history, stop):
    client, chooser, count = Client(nodes), random.Random(-number), 0
    while not stop.wait(chooser.uniform(0, 2 * REGISTER_PAUSE_S)):
        count += 1
        words, step = choose_register_operation(chooser, (count * REGISTER_CLIENTS + number + 1) * APART)
        invoked = time.monotonic_ns()
        operation = {"client": number, "invoked": invoked, "steps": [step]}
        try:
            reply = reply_of(step["action"], answer := client.ask(words, time.monotonic() + 30))
        except Lost:
            # It may have happened, and may happen later.
            operation |= {"returned": 1 << 62, "replies": None}
            reply = step["action"] != "get"
        else:
            operation |= {"returned": time.monotonic_ns(), "replies": [reply]}
            if reply is None:
                history.failed(answer)
        if reply:
            with history.lock:
                history.registers.append(operation)


def check_with_porcupine(history, directory):
    """Returns a violation, or None."""
    folder = os.path.join(directory, "histories")
    os.makedirs(folder)
    with open(os.path.join(folder, "registers.jsonl"), "w") as file:
        file.writelines(json.dumps(one, separators=(",", ":")) + "\n" for one in history.registers)
    command = ["go", "run", ".", folder]
    done = subprocess.run(command, cwd=os.path.join(HERE, "..", "porcupine"), capture_output=True, text=True)
    print(done.stdout.strip())
    return None if done.returncode == 0 else f"porcupine: {done.stdout}{done.stderr}"


def read_lists(nodes, history):
    """Returns the tokens of each list."""
    client, final = Client(nodes), {}
    for key in history.keys:
        answer = client.ask([b"GET", key], time.monotonic() + 30)
        if answer is not None and answer[:1] != b"$":
            raise SystemExit(f"GET {key.decode()}: {answer.decode(errors='replace')}")
        final[key] = [] if answer is None else answer[1:].split(b",")[1:]
    return final


def check(history, final):
    for token, (key, _) in history.acknowledged.items():
        if final[key].count(token) != 1:
            return f"acknowledged token {token} is {final[key].count(token)} times in {key}"
    for tokens, name, most in ((history.open, "open", 1), (history.refused, "refused", 0)):
        for token, key in tokens.items():
            if final[key].count(token) > most:
                return f"{name} token {token} is {final[key].count(token)} times in {key}"
    position = {(key, token): at for key, tokens in final.items() for at, token in enumerate(tokens)}
    for key, tokens in final.items():
        if len(set(tokens)) != len(tokens):
            return f"{key} has a token twice"
    # For each key: the events after which a read must show at least so many tokens.
    known = {key: [] for key in final}
    for token, (key, at) in history.acknowledged.items():
        known[key].append((at, position[(key, token)] + 1))
    for key, began, ended, text in history.reads:
        tokens = text.split(b",")[1:]
        if tokens != final[key][: len(tokens)]:
            return f"a read of {key} at {began:.3f} is no beginning of the final list: {tokens[-5:]}"
        known[key].append((ended, len(tokens)))
    for events in known.values():
        events.sort()
    for key in final:
        reads = sorted((began, len(text.split(b",")) - 1) for of, began, _, text in history.reads if of == key)
        least, at, events = 0, 0, known[key]
        for began, length in reads:
            while at < len(events) and events[at][0] < began:
                least = max(least, events[at][1])
                at += 1
            if length < least:
                return f"stale: a read of {key} at {began:.3f} shows {length} tokens, and {least} were known before"
    return None


def status(binary, nodes):
    """Yields what each node that answers knows. `esker` ends with 1 if copies are missing."""
    for node in nodes:
        shown = subprocess.run(
            [binary, "cluster", "status", "--from", node.address, "--json", "--timeout", "3s"], capture_output=True, text=True
        )
        try:
            yield json.loads(shown.stdout)
        except ValueError:
            pass


def wait_until_replicated(binary, nodes, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        seen = list(status(binary, nodes))
        if len(seen) == len(nodes) and all(one.get("is_replicated") for one in seen):
            return True
        time.sleep(0.5)
    return False


def id_of(binary, nodes, node):
    for seen in status(binary, nodes):
        for one in seen["nodes"]:
            if one["resp"] == node.address:
                return one["id"]
    raise SystemExit(f"no node knows that at {node.address}")


def remove(binary, nodes, number):
    """Removes a node from the cluster, once the empty one in its place has joined."""
    until, done = time.monotonic() + 90, None
    while time.monotonic() < until:
        for node in nodes:
            words = [binary, "cluster", "remove", number, "--from", node.address, "--timeout", "20s"]
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode == 0:
                return
        time.sleep(0.5)
    raise SystemExit(f"esker cluster remove {number}: {done.stdout}{done.stderr}")


def fault(kind, nodes, network, chooser, binary):
    """Makes a fault for a while, and ends it. Returns what it was."""
    node = chooser.choice(nodes)
    lasts = chooser.uniform(0.2, 5)
    if kind == "kill":
        node.kill()
        time.sleep(lasts)
        node.start()
    elif kind == "restart":
        served, code = node.serves(), node.end()
        if code != 0 and served:
            raise SystemExit(f"node {node.number} ended with {code} after SIGTERM")
        time.sleep(lasts / 5)
        node.start()
    elif kind == "stop":
        node.send(signal.SIGSTOP)
        time.sleep(lasts)
        node.send(signal.SIGCONT)
    elif kind == "cut":
        other = chooser.choice([one for one in nodes if one is not node])
        network.cut(node.number, other.number)
        time.sleep(lasts)
        network.heal()
    elif kind == "isolate":
        for other in nodes:
            if other is not node:
                network.cut(node.number, other.number)
                network.cut(other.number, node.number)
        time.sleep(lasts)
        network.heal()
    elif kind in ("clock", "rate"):
        node.kill()
        offset = chooser.choice([-3600, -60, -2, 0, 2, 60, 3600])
        node.faketime = f"{offset:+d}s" if kind == "clock" else f"+0s x{chooser.uniform(0.96, 1.04):.3f}"
        node.start()
        time.sleep(lasts)
    elif kind == "full":
        node.fill()
        time.sleep(lasts)
        node.empty()
        if node.process.poll() is not None:
            node.start()
    elif kind == "rot":
        # Only one node is damaged at a time: the others must have everything.
        if not wait_until_replicated(binary, nodes, 90):
            raise SystemExit("the cluster is not replicated 90 s before bytes rot")
        old = id_of(binary, nodes, node)
        node.kill()
        flipped = node.rot(chooser)
        node.start()
        time.sleep(lasts + 5)
        code = node.process.poll()
        node.kill()
        node.wipe()
        node.start()
        remove(binary, [one for one in nodes if one is not node], old)
        return f"rot {node.number} {flipped} bytes ({'served' if code is None else f'refused with {code}'})"
    return f"{kind} {node.number} {lasts:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("esker")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--faults", default="kill,restart,stop,cut,isolate", help="of: " + ",".join(FAULTS))
    parser.add_argument("--porcupine", action="store_true", help="check registers with porcupine")
    parser.add_argument("--keep", action="store_true", help="keep the directory of the nodes")
    arguments = parser.parse_args()
    binary = os.path.abspath(arguments.esker)
    kinds = arguments.faults.split(",")
    if not set(kinds) <= set(FAULTS):
        parser.error(f"faults are: {','.join(FAULTS)}")
    if {"clock", "rate"} & set(kinds) and not FAKETIME:
        print("SKIPPED: faketime is not installed")
        return 0
    tools = ["ip", "nft"] + (["mkfs.ext4", "losetup"] if {"full", "rot"} & set(kinds) else [])
    tools += ["go"] if arguments.porcupine else []
    for tool in tools:
        if shutil.which(tool) is None:
            print(f"SKIPPED: {tool} is not installed")
            return 0
    if os.geteuid() != 0:
        print("SKIPPED: network namespaces need root")
        return 0
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 32)
    chooser = random.Random(seed)
    directory = tempfile.mkdtemp(prefix="esker-faults-")
    network = Network()
    nodes = [Node(number, binary, directory) for number in range(1, NODES + 1)]
    violation, stop = None, threading.Event()
    try:
        for node in nodes:
            if {"full", "rot"} & set(kinds):
                node.mount()
            node.start()
            time.sleep(1)
        if not wait_until_replicated(binary, nodes, 60):
            violation = "the cluster is not replicated within 60 s of its start"
            return report(violation, directory, seed)
        history = History()
        workers = [threading.Thread(target=work, args=(number, nodes, history, stop)) for number in range(CLIENTS)]
        registers = [(number, nodes, history, stop) for number in range(REGISTER_CLIENTS)]
        workers += [threading.Thread(target=work_on_registers, args=one) for one in registers]
        for worker in workers:
            worker.start()
        ends, faults = time.monotonic() + arguments.seconds, []
        while time.monotonic() < ends:
            time.sleep(chooser.uniform(0.2, 3))
            faults.append(fault(chooser.choice(kinds), nodes, network, chooser, binary))
        if not wait_until_replicated(binary, nodes, 90):
            violation = "the cluster is not replicated 90 s after the last fault: " + ", ".join(faults[-5:])
        stop.set()
        for worker in workers:
            worker.join()
        violation = violation or check(history, read_lists(nodes, history))
        if arguments.porcupine:
            violation = violation or check_with_porcupine(history, directory)
        if violation is None:
            print(
                f"seed {seed}: {len(faults)} faults, {len(history.acknowledged)} appends acknowledged, {len(history.open)} open, "
                f"{len(history.refused)} refused, {len(history.reads)} reads: nothing lost, doubled, reordered or stale"
            )
            for one in faults:
                if one.startswith("rot"):
                    print(f"  {one}")
            for answer, count in sorted(history.errors.items(), key=lambda pair: -pair[1])[:5]:
                print(f"  {count} times {answer.decode(errors='replace')[:150]}")
            return 0
        return report(violation, directory, seed)
    finally:
        # Clients that outlive the run would write to the nodes of the next one.
        stop.set()
        for node in nodes:
            if node.process is not None:
                node.kill()
            node.unmount()
        network.down()
        if violation is None and not arguments.keep:
            shutil.rmtree(directory)


def report(violation, directory, seed):
    print(f"VIOLATION with seed {seed}: {violation}\nstores and logs are in {directory}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
