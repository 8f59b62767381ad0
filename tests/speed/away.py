#!/usr/bin/env python3
"""Bytes that a node gets when it comes back, beside those that were written while it was away.

    python3 tests/speed/away.py target/release/esker DIR [--mib 24] [--seconds 30]

Three nodes on this machine, 12 groups of three copies with `--mib` of values of 1 KiB each. One node is killed, started again after
`--seconds`, and gets the missing writes by the log or by copies of groups. Meanwhile, 1 MiB of values is written anew to one group after the
other. Prints the bytes written meanwhile, the bytes sent in copies, and the seconds until every group has three copies again.
"""

import argparse
import os
import sys
import time

from failover import Cluster
from moves import fill, sent_bytes, status

AWAY = 3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("directory")
    parser.add_argument("--mib", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--port", type=int, default=7500)
    given = parser.parse_args()
    directory = os.path.join(os.path.realpath(given.directory), "away")
    cluster = Cluster(os.path.realpath(given.binary), directory, 12, given.port)
    try:
        for node in (1, 2, AWAY):
            cluster.start(node, found=node == 1)
            time.sleep(2)
        cluster.settle()
        groups = [group for group in status(cluster)["groups"] if group["slots"]]
        for group in groups:
            fill(cluster, group, given.mib, 1024)
        time.sleep(25)
        copied = lambda: sum(sent_bytes(cluster, group["group"]) for group in groups)
        before = copied()
        cluster.kill(AWAY)
        while not all(leader in (1, 2) for _, leader in cluster.leaders().values()):
            time.sleep(0.5)
        ends, written = time.monotonic() + given.seconds, 0
        while time.monotonic() < ends:
            fill(cluster, groups[written % len(groups)], 1, 1024)
            written += 1
            time.sleep(0.2)
        cluster.start(AWAY)
        began = time.monotonic()
        time.sleep(2)
        cluster.settle()
        seconds = time.monotonic() - began
        print(f"{written} MiB written while the node was away; {(copied() - before) / 2**20:.0f} of {given.mib * len(groups)} MiB sent in copies; {seconds:.0f} s")
    finally:
        cluster.end()


if __name__ == "__main__":
    sys.exit(main())
