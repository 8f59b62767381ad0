#!/usr/bin/env python3
"""Rate of a move of a group, and latencies of the other groups with and without one.

    python3 tests/speed/moves.py target/release/esker DIR [--mib 512] [--value 1024] [--rate 1000] [--rounds 6]

Four nodes on this machine, 12 groups of three copies. One group gets `--mib` of values. Clients (cluster_load, needs Go) write to
the other groups at a fixed rate, as an open loop. In turns, a window without a move and one with a move of a copy of the group, from a
node that does not lead it to the one that does not have it. Prints for each round the bytes and the seconds of the move and the
figures of both windows, and in the end the same bytes copied from a file over a loopback connection into a file, flushed.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time

from failover import Cluster, Connection, slot_of

HERE = os.path.dirname(os.path.abspath(__file__))
NODES = 4
PIPELINED = 64


def median(values):
    return sorted(values)[len(values) // 2]


def status(cluster):
    return json.loads(Connection(cluster.resp(1)).ask(b"CLUSTER", b"ESKER", b"STATUS"))


def settle(cluster):
    """Waits until every group is replicated and no copies are on their way."""
    while cluster.ask("status", from_node=1) is None or status(cluster)["balancing"]:
        time.sleep(0.5)


def fill(cluster, group, mib, length):
    """Writes values into a group until it has this many MiB. Repeats what is refused, as while a leader is elected."""
    tag = next(tag for tag in (b"t%d" % n for n in range(1 << 20)) if group["slots"][0] <= slot_of(tag) <= group["slots"][1])
    left, connection = list(range(mib * (1 << 20) // length)), None
    while left:
        if connection is None:
            time.sleep(0.5)
            group = next(one for one in status(cluster)["groups"] if one["group"] == group["group"])
            leaders = [one["resp"] for one in status(cluster)["nodes"] if one["id"] == group["leader"]]
            connection = Connection(leaders[0]) if leaders else None
            continue
        part = [left.pop() for _ in range(min(PIPELINED, len(left)))]
        for at in part:
            words = [b"SET", b"{%s}:%012d" % (tag, at), os.urandom(length // 2).hex().encode()]
            connection.stream.write(b"*3\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        connection.stream.flush()
        if failed := [at for at in part if connection.answer() != "OK"]:
            left += failed
            connection = None


def sent_bytes(cluster, number):
    """Returns the bytes of the group that all nodes have sent in copies."""
    total = 0
    for node in cluster.processes:
        seen = json.loads(Connection(cluster.resp(node)).ask(b"CLUSTER", b"ESKER", b"STATUS"))
        total += sum(one["value"] for one in seen["metrics"] if one["name"] == "snapshot_bytes_total" and one["group"] == number)
    return total


def move(cluster, number):
    """Moves a copy. Returns the bytes that were sent, and the seconds until the last node voted."""
    seen = status(cluster)
    group = next(one for one in seen["groups"] if one["group"] == number)
    source = next(voter for voter in group["voters"] if voter != group["leader"])
    target = next(one["id"] for one in seen["nodes"] if one["id"] not in group["voters"])
    before, began = sent_bytes(cluster, number), time.monotonic()
    if cluster.ask("move", str(number), source, target, from_node=1) is None:
        raise SystemExit(f"the move of group {number} was refused")
    while True:
        group = next(one for one in status(cluster)["groups"] if one["group"] == number)
        if target in group["voters"] and source not in group["voters"] + group["learners"]:
            return sent_bytes(cluster, number) - before, time.monotonic() - began
        time.sleep(0.05)


class Load:
    def __init__(self, program, cluster, skip, rate, clients):
        words = [program, "-addrs", ",".join(cluster.resp(node) for node in (1, 2, 3, 4)), "-skip", f"{skip[0]}-{skip[1]}"]
        words += ["-rate", str(rate), "-clients", str(clients), "-marks", "-warm", "0"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def mark(self):
        """Ends a window. Returns its figures."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def copy(directory, size):
    """Returns the seconds in which a file travels over a loopback connection into another one, and is flushed."""
    source, target = os.path.join(directory, "source"), os.path.join(directory, "target")
    with open(source, "wb") as file:
        for _ in range(size >> 20):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    listener = socket.create_server(("127.0.0.1", 0))

    def receive():
        connection, _ = listener.accept()
        with open(target, "wb") as file:
            while part := connection.recv(1 << 20):
                file.write(part)
            os.fsync(file.fileno())

    receiver, began = threading.Thread(target=receive), time.monotonic()
    receiver.start()
    with open(source, "rb") as file, socket.create_connection(listener.getsockname()) as connection:
        connection.sendfile(file)
    receiver.join()
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("directory")
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--value", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--port", type=int, default=7600)
    given = parser.parse_args()
    directory = os.path.join(os.path.realpath(given.directory), "moves")
    cluster, load = Cluster(os.path.realpath(given.binary), directory, 12, given.port, "8g"), None
    program = os.path.join(directory, "cluster_load")
    subprocess.run(["go", "build", "-o", program, "."], cwd=os.path.join(HERE, "cluster_load"), check=True)
    try:
        for node in range(1, NODES + 1):
            cluster.start(node, found=node == 1)
            time.sleep(2)
        while cluster.ask("status", from_node=1) is None or cluster.ask("rebalance", from_node=1) is None:
            time.sleep(1)
        settle(cluster)
        group = next(one for one in status(cluster)["groups"] if one["slots"])
        fill(cluster, group, given.mib, given.value)
        print(f"group {group['group']} has {given.mib} MiB", flush=True)
        # Two floors, so that the log reaches back no longer.
        time.sleep(25)
        settle(cluster)
        load = Load(program, cluster, group["slots"], given.rate, given.clients)
        time.sleep(5)
        rates, ratios, lasted = [], [], 10
        for number in range(given.rounds):
            load.mark()
            time.sleep(lasted)
            without = load.mark()
            sent, lasted = move(cluster, group["group"])
            during = load.mark()
            settle(cluster)
            time.sleep(5)
            rates.append(sent / lasted / 1e6)
            ratios.append(during["p99_ms"] / without["p99_ms"])
            figures = [f"{one['per_s']}/s p50 {one['p50_ms']} p99 {one['p99_ms']} longest {one['longest_ms']} ms" for one in (without, during)]
            print(f"  {sent / 1e6:.0f} MB in {lasted:.1f} s: {rates[-1]:.1f} MB/s; without {figures[0]}; with {figures[1]}", flush=True)
        print(f"move: median {median(rates):.1f} MB/s; p99 of the other groups {median(ratios):.2f} times that without a move (median)")
        seconds = [copy(directory, given.mib << 20) for _ in range(3)]
        print(f"copy of a file over loopback: median {(given.mib << 20) / median(seconds) / 1e6:.0f} MB/s")
    finally:
        if load:
            load.process.kill()
        cluster.end()


if __name__ == "__main__":
    sys.exit(main())
