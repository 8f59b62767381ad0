#!/usr/bin/env python3
"""Gaps in the writes of a cluster of three while leaders are killed, or hand over.

    python3 tests/speed/failover.py target/release/esker DIR [--kills 20] [--transfers 24] [--idle 10] [--groups 12]

One writer for each group sets a key, waits for the answer and sets it again, 2 ms later. It follows MOVED, and repeats after
CLUSTERDOWN, TRYAGAIN, UNCERTAIN and a lost connection, 5 ms later. Prints

* for each SIGKILL of a node: the longest time between two acknowledged writes of one group, over the groups that it led;
* for each `esker cluster transfer`: the same for the group that is handed over;
* the processor time and the bytes written of a cluster without clients, over `--idle` seconds.

DIR gets a directory for the stores, which is removed. Needs Python 3 alone.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

TICKS = os.sysconf("SC_CLK_TCK")


def slot_of(key):
    crc = 0
    for byte in key:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc & 16383


class Cluster:
    def __init__(self, binary, directory, groups, port, limit="2g"):
        self.binary, self.directory, self.groups, self.port, self.limit = binary, directory, groups, port, limit
        self.processes = {}
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(directory)

    def end(self):
        """Kills all nodes, and removes their stores."""
        for process in self.processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def resp(self, node):
        return f"127.0.0.1:{self.port + node}"

    def start(self, node, found=False):
        words = [self.binary, "serve", "--dir", f"{self.directory}/n{node}", "--resp", self.resp(node)]
        words += ["--cluster", f"127.0.0.1:{self.port + 100 + node}", "--cluster-secret", "s"]
        words += ["--cluster-new", "--cluster-groups", str(self.groups)] if found else []
        words += [] if node == 1 else ["--join", f"127.0.0.1:{self.port + 101}"]
        words += ["--memory", "256m", "--capacity-limit", self.limit]
        log = open(f"{self.directory}/n{node}.log", "a")
        self.processes[node] = subprocess.Popen(words, stdout=log, stderr=log)

    def kill(self, node):
        self.processes[node].send_signal(signal.SIGKILL)
        self.processes.pop(node).wait()

    def ask(self, *words, from_node):
        done = subprocess.run([self.binary, "cluster", *words, "--from", self.resp(from_node)], capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else None

    def settle(self):
        """Waits until every group is replicated and the leaders are spread."""
        while True:
            time.sleep(1)
            if self.ask("status", from_node=1) is None:
                continue
            counts = {}
            for _, leader in self.leaders().values():
                counts[leader] = counts.get(leader, 0) + 1
            if len(counts) == 3 and max(counts.values()) - min(counts.values()) <= 1:
                return

    def leaders(self):
        """Returns the first slot of each group, with the group and the number of its leading node."""
        for node in self.processes:
            text = self.ask("groups", "--json", from_node=node)
            if text:
                listed = json.loads(text)
                nodes = {one["id"]: int(one["resp"].rsplit(":", 1)[1]) - self.port for one in listed["nodes"]}
                data = [one for one in listed["groups"] if one["slots"]]
                return {one["slots"][0]: (one["group"], nodes.get(one["leader"])) for one in data}
        return {}

    def processor_seconds(self):
        total = 0
        for process in self.processes.values():
            with open(f"/proc/{process.pid}/stat") as stat:
                fields = stat.read().rsplit(") ", 1)[1].split()
            total += (int(fields[11]) + int(fields[12])) / TICKS
        return total

    def written_bytes(self):
        total = 0
        for process in self.processes.values():
            with open(f"/proc/{process.pid}/io") as io:
                total += int(dict(line.split(": ") for line in io.read().splitlines())["write_bytes"])
        return total


class Connection:
    """One connection of a client."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        connection = socket.create_connection((host, int(port)), timeout=1)
        connection.settimeout(15)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = connection.makefile("rwb")

    def ask(self, *words):
        self.stream.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        self.stream.flush()
        return self.answer()

    def answer(self):
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise OSError("the connection ended")
        kind, rest = line[:1], line[1:-2]
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else self.stream.read(int(rest) + 2)[:-2].decode()
        return line[:-2] if kind == b"-" else rest.decode()


class Writer(threading.Thread):
    """Writes one key of a group for ever. `acknowledged` has the times of all answers."""

    def __init__(self, cluster, first_slot, last_slot):
        super().__init__(daemon=True)
        self.cluster, self.first_slot = cluster, first_slot
        self.key = next(key for key in (b"k%d" % n for n in range(1 << 20)) if first_slot <= slot_of(key) <= last_slot)
        self.acknowledged, self.connections, self.ends = [], {}, False

    def run(self):
        addresses = [self.cluster.resp(node) for node in (1, 2, 3)]
        at = addresses[0]
        while not self.ends:
            try:
                if at not in self.connections:
                    self.connections[at] = Connection(at)
                answer = self.connections[at].ask(b"SET", self.key, b"v" * 256)
            except OSError:
                self.connections.pop(at, None)
                answer = b"-lost"
            if answer == "OK":
                self.acknowledged.append(time.monotonic())
                time.sleep(0.002)
            elif answer.startswith(b"-MOVED"):
                at = answer.split()[2].decode()
            else:
                at = addresses[(addresses.index(at) + 1) % 3]
                time.sleep(0.005)

    def gap(self, since, until):
        """Returns the longest time between two answers that overlaps a period, in seconds."""
        times = list(self.acknowledged)
        pairs = zip(times, times[1:])
        return max((later - earlier for earlier, later in pairs if later > since and earlier < until), default=until - since)

    def wait_for_answer_after(self, since):
        while not self.acknowledged or self.acknowledged[-1] <= since:
            time.sleep(0.02)


def show(name, gaps_ms):
    gaps_ms = sorted(gaps_ms)
    median = gaps_ms[len(gaps_ms) // 2]
    print(f"{name}: {len(gaps_ms)} times, gap median {median:.0f} ms, longest {gaps_ms[-1]:.0f} ms", flush=True)


def kills(cluster, writers, count):
    gaps = []
    for number in range(count):
        node, leaders = number % 3 + 1, cluster.leaders()
        led = [writer for writer in writers if leaders.get(writer.first_slot, (0, 0))[1] == node]
        began = time.monotonic()
        cluster.kill(node)
        for writer in led:
            writer.wait_for_answer_after(began + 0.02)
        gaps += [1000 * max(writer.gap(began - 0.1, time.monotonic()) for writer in led)]
        print(f"  kill {number + 1}: node {node}, {len(led)} groups, {gaps[-1]:.0f} ms", flush=True)
        cluster.start(node)
        cluster.settle()
    if gaps:
        show("SIGKILL of a leader", gaps)


def transfers(cluster, writers, count):
    gaps = []
    for number in range(count):
        writer = writers[number % len(writers)]
        group, leader = cluster.leaders()[writer.first_slot]
        target = leader % 3 + 1
        began = time.monotonic()
        if cluster.ask("transfer", str(group), cluster.resp(target), from_node=leader) is None:
            print(f"  transfer of group {group} to node {target} was refused", flush=True)
        writer.wait_for_answer_after(time.monotonic())
        gaps.append(1000 * writer.gap(began, time.monotonic()))
        time.sleep(0.5)
    if gaps:
        show("transfer", gaps)


def idle(cluster, seconds):
    time.sleep(15)
    before, bytes_before = cluster.processor_seconds(), cluster.written_bytes()
    time.sleep(seconds)
    share = (cluster.processor_seconds() - before) / seconds
    print(f"idle: {100 * share:.1f} % of a core, {cluster.written_bytes() - bytes_before} bytes written in {seconds} s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("directory")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--transfers", type=int, default=24)
    parser.add_argument("--idle", type=int, default=10)
    parser.add_argument("--groups", type=int, default=12)
    parser.add_argument("--port", type=int, default=7300)
    given = parser.parse_args()
    directory = os.path.join(os.path.realpath(given.directory), "failover")
    cluster = Cluster(os.path.realpath(given.binary), directory, given.groups, given.port)
    try:
        cluster.start(1, found=True)
        time.sleep(2)
        cluster.start(2)
        cluster.start(3)
        cluster.settle()
        if given.idle:
            idle(cluster, given.idle)
        starts = sorted(cluster.leaders())
        assert len(starts) == given.groups, f"{len(starts)} ranges of slots for {given.groups} groups"
        writers = [Writer(cluster, first, last - 1) for first, last in zip(starts, starts[1:] + [16384])]
        for writer in writers:
            writer.start()
        time.sleep(1)
        transfers(cluster, writers, given.transfers)
        kills(cluster, writers, given.kills)
    finally:
        cluster.end()


if __name__ == "__main__":
    main()
