#!/usr/bin/env python3
"""Throughput of a cluster of 1, 3 and 6 nodes, each with a fixed share of processor and disk, as ratios.

    python3 tests/speed/scaling.py target/release/esker DIR [--share 15] [--write-mib 20] [--seconds 20] [--rounds 3] [--copies 1]

Each node is in a control group of its own, of version 1 or 2: `--share` percent of a core, and `--write-mib` MiB/s to the device of DIR.
Choose the share so that six nodes and the clients (cluster_load, needs Go) fit on the machine. Leaders are spread evenly over the
nodes. Clients in a closed loop SET and GET keys of all groups. The sizes take turns; prints the median of each, and its ratio to that
of one node times the number of nodes. A cluster of one node has one copy, so ratios of SETs need `--copies 1`. Needs root.
"""

import argparse
import json
import os
import subprocess
import time

from failover import Cluster

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = (1, 3, 6)
PERIOD_US = 100_000


class ControlGroup:
    """Limits of one process."""

    def __init__(self, name, share, write_bytes, device):
        root, quota_us = "/sys/fs/cgroup", PERIOD_US * share // 100
        if os.path.exists(f"{root}/cgroup.controllers"):
            with open(f"{root}/cgroup.subtree_control", "w") as file:
                file.write("+cpu +io")
            self.paths = [f"{root}/{name}"]
            limits = [(0, "cpu.max", f"{quota_us} {PERIOD_US}"), (0, "io.max", f"{device} wbps={write_bytes}")]
        else:
            self.paths = [f"{root}/cpu/{name}", f"{root}/blkio/{name}"]
            limits = [(0, "cpu.cfs_period_us", str(PERIOD_US)), (0, "cpu.cfs_quota_us", str(quota_us))]
            limits += [(1, "blkio.throttle.write_bps_device", f"{device} {write_bytes}")]
        for path in self.paths:
            os.makedirs(path, exist_ok=True)
        for at, limit, value in limits:
            with open(f"{self.paths[at]}/{limit}", "w") as file:
                file.write(value)

    def add(self, process):
        for path in self.paths:
            with open(f"{path}/cgroup.procs", "w") as file:
                file.write(str(process))

    def remove(self):
        for path in self.paths:
            os.rmdir(path)


def device_of(directory):
    """Returns the number of the whole device below a directory, as control groups have it."""
    number = os.stat(directory).st_dev
    path = os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if os.path.exists(f"{path}/partition"):
        path = os.path.dirname(path)
    with open(f"{path}/dev") as file:
        return file.read().strip()


def is_even(cluster, nodes):
    counts = {}
    for _, leader in cluster.leaders().values():
        counts[leader] = counts.get(leader, 0) + 1
    return len(counts) == nodes and None not in counts and max(counts.values()) == min(counts.values())


def wait(name, is_so):
    for _ in range(600):
        if is_so():
            return
        time.sleep(0.5)
    raise SystemExit(f"{name} does not come within 300 s")


def measure(given, program, nodes, directory, device):
    """Returns SETs and GETs a second of a cluster of this many nodes."""
    cluster, groups = Cluster(given.binary, directory, 12, given.port), []
    try:
        for node in range(1, nodes + 1):
            cluster.start(node, found=node == 1)
            time.sleep(1)
        wait("a leader", lambda: cluster.ask("replicas", str(given.copies), from_node=1) is not None)
        wait("the balancing", lambda: cluster.ask("rebalance", from_node=1) is not None)
        wait("an even distribution of leaders", lambda: is_even(cluster, nodes))
        for node, process in cluster.processes.items():
            groups.append(ControlGroup(f"esker-scaling-{node}", given.share, given.write_mib << 20, device))
            groups[-1].add(process.pid)
        figures = []
        for verb in ("set", "get"):
            words = [program, "-addrs", ",".join(cluster.resp(node) for node in cluster.processes), "-verb", verb, "-keys", "20000"]
            words += ["-clients", str(given.clients * nodes), "-secs", str(given.seconds), "-warm", "5"]
            shown = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
            if shown["errors"]:
                raise SystemExit(f"{nodes} nodes: {shown}")
            figures.append(shown["per_s"])
        return figures
    finally:
        cluster.end()
        for group in groups:
            group.remove()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("directory")
    parser.add_argument("--share", type=int, default=15)
    parser.add_argument("--write-mib", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--copies", type=int, default=1, choices=(1, 3))
    parser.add_argument("--clients", type=int, default=16, help="for each node")
    parser.add_argument("--port", type=int, default=7800)
    given = parser.parse_args()
    given.binary = os.path.realpath(given.binary)
    directory = os.path.join(os.path.realpath(given.directory), "scaling")
    os.makedirs(given.directory, exist_ok=True)
    device, program = device_of(given.directory), os.path.join(os.path.realpath(given.directory), "cluster_load")
    subprocess.run(["go", "build", "-o", program, "."], cwd=os.path.join(HERE, "cluster_load"), check=True)
    rates = {nodes: [] for nodes in SIZES}
    for number in range(given.rounds):
        for nodes in SIZES:
            rates[nodes].append(measure(given, program, nodes, directory, device))
            print(f"  round {number + 1}, {nodes} nodes: {rates[nodes][-1][0]} SET/s, {rates[nodes][-1][1]} GET/s", flush=True)
    for at, verb in enumerate(("SET", "GET")):
        medians = {nodes: sorted(one[at] for one in rates[nodes])[given.rounds // 2] for nodes in SIZES}
        shown = [f"{nodes} nodes {rate}/s ({rate / medians[1] / nodes:.2f} of linear)" for nodes, rate in medians.items()]
        print(f"{verb}, {given.copies} copies, {given.share} % of a core a node: " + ", ".join(shown))


if __name__ == "__main__":
    main()
