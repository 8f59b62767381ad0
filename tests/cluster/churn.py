#!/usr/bin/env python3
"""Six nodes that come and go while 64 writers append: nodes, networks, clients and the checker are those of faults.py.

    python3 tests/cluster/churn.py target/release/esker --minutes 60 [--seed N]
    python3 tests/cluster/churn.py target/release/esker --steps add,drain,kill,move --spread 8000000 --tagged 8000000 --dir /var/tmp

    add        an empty node joins, and the groups are rebalanced
    drain      a node is drained and removed, its process ends, and its files are deleted
    lose       a node is killed and its files are deleted; it is removed with --dead, and an empty one joins in its place
    replicas   3 -> 5 -> 1 -> 3 copies
    cut        a node receives nothing of another one for a while
    kill       SIGKILL, then another start
    move       one copy of a group moves
    snapshot   a copy of a group moves, and its sender or receiver is killed once 0, 50 or 99 % of its bytes are sent

`--spread` keys of 16 B are divided among all slots, `--tagged` keys have one hash tag. The lists are new in each round of `--round`
seconds, and checked at its end. In the end, and after each round, the number of keys is exact. At most 60 s after the end every
group has a leader and all its copies, and no change of members is in progress. Needs root, Python 3, iproute2 and nftables.

Prints the first violation and ends with 1, or figures.
"""

import argparse
import binascii
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from faults import Client, History, Lost, Network, Node, check, read_lists, work

NODES = 6
WRITERS = 64
LISTS = 96
BATCH = 500
TAGS = 4096
SETTLED_S = 60
# A step that takes longer than this does not end: the largest group is copied in a small part of it.
PATIENCE_S = 900
STEPS = ("add", "drain", "lose", "replicas", "cut", "kill", "move", "snapshot")


class Violation(Exception):
    """The cluster does not do as it promises."""


class Fleet:
    """The nodes that run, and the cluster's view of them."""

    def __init__(self, binary, directory, options, chooser):
        self.binary, self.chooser = binary, chooser
        self.network = Network(NODES)
        self.all = [Node(number, binary, directory, NODES, options) for number in range(1, NODES + 1)]
        self.running = []
        self.group_bytes = {}

    def start(self):
        for node in self.all:
            self.begin(node)
            time.sleep(1)
        self.wait("the founding", self.is_settled)
        self.order("rebalance")
        self.wait("the balancing", lambda: (seen := self.view()) and not seen["balancing"] and self.is_settled())

    def begin(self, node):
        node.is_founder = node.number == 1 and not self.running
        node.start()
        self.running.append(node)

    def end(self, node):
        """Ends a node for good."""
        node.kill()
        node.wipe()
        self.running.remove(node)

    def ask(self, *words, node):
        """Returns the answer of `esker cluster`, and whether it was accepted."""
        words = [self.binary, "cluster", *words, "--from", node.address, "--timeout", "30s"]
        done = subprocess.run(words, capture_output=True, text=True)
        return done.returncode == 0, (done.stdout + done.stderr).strip()

    def order(self, *words, without=()):
        """Gives an order until it is accepted: a node refuses one while it knows no leader of the nodes."""
        answers = []

        def is_accepted():
            # Not the node that the order removes.
            others = [node for node in self.running if node not in without]
            accepted, answer = self.ask(*words, node=self.chooser.choice(others))
            answers.append(answer)
            # An earlier request was executed, and its answer was lost.
            return accepted or (words[0] == "remove" and len(answers) > 1 and "Unknown node" in answer)

        self.wait(" ".join(words), is_accepted, lambda: answers[-1])

    def state(self, node):
        """Returns a node's view; None if it does not answer."""
        try:
            answer = Client([node]).ask_at(node.address, [b"CLUSTER", b"ESKER", b"STATUS"])
        except Lost:
            return None
        return json.loads(answer[1:]) if answer and answer[:1] == b"$" else None

    def view(self):
        """Returns the view of any node."""
        for node in self.chooser.sample(self.running, len(self.running)):
            if seen := self.state(node):
                return seen
        return None

    def id_of(self, node, seen):
        return next((one["id"] for one in seen["nodes"] if one["resp"] == node.address), None)

    def unsettled(self):
        """Returns what is not as it should be in the view of any node; None if all agree that nothing is."""
        for node in self.running:
            seen = self.state(node)
            if seen is None:
                return f"node {node.number} does not answer"
            if len(seen["nodes"]) != len(self.running):
                return f"node {node.number} knows {len(seen['nodes'])} nodes of {len(self.running)}"
            copies = min(seen["replicas"], len(self.running))
            for group in seen["groups"]:
                name, voters = f"group {group['group']} at node {node.number}", sorted(group["voters"])
                if not group["leader"] or not group["served"]:
                    return f"{name} has no leader"
                if group["slots"] and (len(voters) != copies or voters != sorted(group["placed"])):
                    return f"{name} has the voters {voters}, placed {group['placed']}, {copies} copies are wanted"
                if group["slots"] and group["learners"]:
                    return f"{name} has the learners {group['learners']}"
        return None

    def is_settled(self):
        return self.unsettled() is None

    def wait(self, name, is_done, why=None, seconds=PATIENCE_S):
        until = time.monotonic() + seconds
        while not is_done():
            for node in self.running:
                if node.process.poll() is not None:
                    raise Violation(f"node {node.number} ended with {node.process.returncode} during {name}")
            if time.monotonic() > until:
                raise Violation(f"{name} does not end within {seconds} s: {(why or self.unsettled)()}")
            time.sleep(0.3)

    def count_keys(self):
        """Returns the number of keys, each counted by the leader of its group."""
        total = 0
        for node in self.running:
            answer = Client([node]).ask([b"DBSIZE"], time.monotonic() + 30)
            if answer[:1] != b":":
                raise Violation(f"DBSIZE at node {node.number}: {answer.decode(errors='replace')}")
            total += int(answer[1:])
        return total


def slot_of(tag):
    return binascii.crc_hqx(tag, 0) & 16383


def fill(fleet, spread, tagged):
    """Writes the keys, in MSETs of keys of one slot. Returns the seconds that it took."""
    tags = max(1, min(TAGS, spread // BATCH))
    parts = [(b"%d" % (at % tags), at // tags) for at in range(-(-spread // BATCH))]
    parts += [(b"one", at) for at in range(-(-tagged // BATCH))]
    lefts = {b"one": tagged}
    left, began, failed, lock = spread, time.monotonic(), [], threading.Lock()
    jobs, groups = [], [group for group in fleet.view()["groups"] if group["slots"]]
    for tag, at in parts:
        if tag == b"one":
            count = min(BATCH, lefts[tag])
            lefts[tag] -= count
        else:
            count = min(BATCH, left)
            left -= count
        jobs.append((tag, at * BATCH, count))
        number = next(one["group"] for one in groups if one["slots"][0] <= slot_of(tag) <= one["slots"][1])
        length = sum(len(b"{%s}:%d" % (tag, one)) + 16 for one in range(at * BATCH, at * BATCH + count))
        fleet.group_bytes[number] = fleet.group_bytes.get(number, 0) + length

    def write():
        client, leaders = Client(fleet.running), {}
        while not failed:
            with lock:
                if not jobs:
                    return
                tag, first, count = jobs.pop()
            client.at = leaders.get(tag, client.at)
            words = [b"MSET"]
            for at in range(first, first + count):
                words += [b"{%s}:%d" % (tag, at), b"%016d" % at]
            until = time.monotonic() + PATIENCE_S
            while True:
                try:
                    answer = client.ask(words, until)
                except Lost:
                    continue  # a second MSET writes the same values
                leaders[tag] = client.at
                if answer[:1] != b"+":
                    failed.append(answer)
                break

    writers = [threading.Thread(target=write) for _ in range(12)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    if failed:
        raise Violation(f"MSET: {failed[0].decode(errors='replace')}")
    return time.monotonic() - began


class Round:
    """Writers of one set of lists."""

    def __init__(self, fleet, number, pause_s):
        self.history, self.stop = History(f"list{number}", LISTS, pause_s), threading.Event()
        arguments = [(1000 * number + writer, fleet.all, self.history, self.stop) for writer in range(WRITERS)]
        self.threads = [threading.Thread(target=work, args=one) for one in arguments]
        for thread in self.threads:
            thread.start()

    def end(self, fleet):
        """Ends the writers and checks what they saw. Returns the number of lists."""
        self.stop.set()
        for thread in self.threads:
            thread.join()
        fleet.wait("the end of a round", fleet.is_settled)
        lists = read_lists(fleet.running, self.history)
        if violation := check(self.history, lists):
            raise Violation(violation)
        history = self.history
        print(
            f"  round: {len(history.acknowledged)} appends, {len(history.open)} open, {len(history.refused)} refused, "
            f"{len(history.reads)} reads: nothing lost, doubled, reordered or stale {dict(list(history.errors.items())[:3])}",
            flush=True,
        )
        return sum(1 for tokens in lists.values() if tokens)


def choose_move(fleet):
    """Returns a group that has its copies, with a node that has one and one that has none; None if there is no such group."""
    seen = fleet.view()
    ids = {fleet.id_of(node, seen): node for node in fleet.running} if seen else {}
    groups = [group for group in seen["groups"] if group["slots"]] if seen else []
    fleet.chooser.shuffle(groups)
    groups.sort(key=lambda group: -group["bytes"])
    for group in groups[:4] if fleet.chooser.random() < 0.5 else groups:
        holders = [ids[voter] for voter in group["voters"] if voter in ids]
        others = [node for node in fleet.running if node not in holders]
        if others and holders and group["leader"] in ids:
            return group, fleet.chooser.choice(holders), fleet.chooser.choice(others), ids[group["leader"]]
    return None


def sent_bytes(fleet, node, group):
    seen = fleet.state(node)
    figures = seen["metrics"] if seen else []
    return next((one["value"] for one in figures if one["name"] == "snapshot_bytes_total" and one["group"] == group), None)


def step(kind, fleet):
    """Makes a step. Returns what it was."""
    chooser = fleet.chooser
    free = [node for node in fleet.all if node not in fleet.running]
    node = chooser.choice(fleet.running)
    if kind == "add":
        if not free:
            return None
        node = chooser.choice(free)
        fleet.begin(node)
        fleet.wait("a join", lambda: (seen := fleet.view()) and len(seen["nodes"]) == len(fleet.running))
        fleet.order("rebalance")
    elif kind == "drain":
        if len(fleet.running) < 5:
            return None
        fleet.wait("the copies before a drain", fleet.is_settled)
        number = fleet.id_of(node, fleet.view())
        fleet.order("drain", number)
        holds = lambda: next((one["holds"] for one in (fleet.view() or {"nodes": []})["nodes"] if one["id"] == number), None)
        fleet.wait("a drain", lambda: holds() == 0, lambda: f"it holds {holds()}")
        fleet.order("remove", number, without=[node])
        fleet.end(node)
    elif kind == "lose":
        if len(fleet.running) < 4:
            return None
        fleet.wait("the copies before a loss", fleet.is_settled)
        number = fleet.id_of(node, fleet.view())
        fleet.end(node)
        fleet.order("remove", "--dead", number)
        fleet.begin(node)
    elif kind == "replicas":
        if len(fleet.running) < 5:
            return None
        for copies in ("5", "1", "3"):
            fleet.order("replicas", copies)
            time.sleep(chooser.uniform(0, 5))
    elif kind == "cut":
        other = chooser.choice([one for one in fleet.running if one is not node])
        fleet.network.cut(node.number, other.number)
        time.sleep(chooser.uniform(0.2, 8))
        fleet.network.heal()
    elif kind == "kill":
        node.kill()
        time.sleep(chooser.uniform(0.2, 5))
        node.start()
    else:
        fleet.wait("the copies before a move", fleet.is_settled)
        if (chosen := choose_move(fleet)) is None:
            return None
        group, node, to, leader = chosen
        number, seen = group["group"], fleet.view()
        before = sent_bytes(fleet, leader, number)
        fleet.order("move", str(number), fleet.id_of(node, seen), fleet.id_of(to, seen))
        name = f"move {number} from {node.number} to {to.number}"
        if kind == "move":
            fleet.wait(name, fleet.is_settled)
            return name
        share, ended = chooser.choice([0, 0.5, 0.99]), chooser.choice([leader, to])
        whole, until, sent = fleet.group_bytes.get(number, 0), time.monotonic() + 30, 0
        while before is not None and sent <= share * whole and time.monotonic() < until:
            sent = (sent_bytes(fleet, leader, number) or before) - before
            if not sent and fleet.is_settled():
                return f"{name} by the log alone"
        ended.kill()
        time.sleep(chooser.uniform(0.2, 5))
        ended.start()
        return f"{name}, {'sender' if ended is leader else 'receiver'} killed at {int(sent)} of {whole} B"
    return f"{kind} {node.number}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("esker")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--steps", help=f"these, once each and in this order, instead of a churn: {','.join(STEPS)}")
    parser.add_argument("--spread", type=int, default=200_000)
    parser.add_argument("--tagged", type=int, default=100_000)
    parser.add_argument("--round", type=float, default=180, help="seconds after which the lists are checked")
    parser.add_argument("--pause-ms", type=float, default=100, help="mean pause of a writer between two requests")
    parser.add_argument("--limit", default="2g", help="capacity-limit of a node")
    parser.add_argument("--dir", help="for the stores")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("nft"):
        print("SKIPPED: network namespaces need root, iproute2 and nftables")
        return 0
    chooser, directory = random.Random(given.seed), tempfile.mkdtemp(prefix="esker-churn-", dir=given.dir)
    fleet = Fleet(os.path.abspath(given.esker), directory, ("--capacity-limit", given.limit), chooser)
    running, violation = None, None
    try:
        fleet.start()
        seconds = fill(fleet, given.spread, given.tagged)
        print(f"seed {given.seed}: {given.spread} + {given.tagged} keys in {seconds:.0f} s", flush=True)
        keys, number, counts = given.spread + given.tagged, 0, {}
        kinds = given.steps.split(",") if given.steps else []
        ends = time.monotonic() + 60 * given.minutes
        while kinds or (not given.steps and time.monotonic() < ends):
            number += 1
            running, turn = Round(fleet, number, given.pause_ms / 1000), time.monotonic() + given.round
            while kinds or (not given.steps and time.monotonic() < min(turn, ends)):
                # Nodes are added as often as they are drained, so that there are five or six of them mostly.
                few = ("add",) * (NODES - len(fleet.running)) * 3
                kind = kinds.pop(0) if given.steps else chooser.choice(STEPS + few)
                began = time.monotonic()
                if done := step(kind, fleet):
                    counts[kind] = counts.get(kind, 0) + 1
                    print(f"  {time.strftime('%H:%M:%S')} {done}: {time.monotonic() - began:.1f} s", flush=True)
                if given.steps:
                    began = time.monotonic()
                    fleet.wait(f"the copies after {kind}", fleet.is_settled)
                    print(f"  settled after {time.monotonic() - began:.1f} s more", flush=True)
            if not kinds and (given.steps or time.monotonic() >= ends):
                began = time.monotonic()
                fleet.wait("the churn", fleet.is_settled, seconds=SETTLED_S)
                print(f"  settled {time.monotonic() - began:.1f} s after the end", flush=True)
            keys += running.end(fleet)
            running = None
            if (counted := fleet.count_keys()) != keys:
                raise Violation(f"the leaders count {counted} keys, {keys} were written")
        print(f"seed {given.seed}: {counts}, {keys} keys: nothing wrong")
    except Violation as why:
        violation = why
        print(f"VIOLATION with seed {given.seed}: {violation}\nstores and logs are in {directory}")
    finally:
        # Clients that outlive the run would write to the nodes of the next one.
        if running:
            running.stop.set()
        for node in fleet.running:
            node.kill()
        fleet.network.down()
        if violation is None:
            shutil.rmtree(directory)
    return 1 if violation else 0


if __name__ == "__main__":
    sys.exit(main())
