"""A cluster of three nodes for clients of Redis Cluster, each `esker serve` with its own directory and ports."""

import json
import os
import signal
import subprocess
import time

from server import free_port

NODES = 3
REPLICATED_SECONDS_MAX = 60


class Cluster:
    """Leaders can be killed and moved, by a key that they lead."""

    def __init__(self, binary, folder, access):
        self.binary, self.folder = binary, folder
        self.ports = [free_port() for _ in range(NODES)]
        self.peers = [free_port() for _ in range(NODES)]
        self.processes = [None] * NODES
        try:
            self.start()
        except RuntimeError:
            self.kill()
            raise

    def environment(self, protocol):
        """Returns the environment variables for client programs."""
        nodes = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return {"HOST": "127.0.0.1", "PORT": str(self.ports[0]), "NODES": nodes, "PROTOCOL": str(protocol)}

    def start(self):
        """Starts the nodes that do not run, and waits until all three have a copy of everything and lead a part."""
        for node in range(NODES):
            if self.processes[node] is None:
                self.start_node(node)
        until = time.monotonic() + REPLICATED_SECONDS_MAX
        before = None
        while True:
            leaders = self.resting_leaders()
            if leaders and leaders == before:
                return
            if time.monotonic() > until:
                raise RuntimeError(f"the cluster is not replicated within {REPLICATED_SECONDS_MAX} s of its start")
            before = leaders
            time.sleep(1)

    def start_node(self, node):
        store = os.path.join(self.folder, f"node{node}")
        others = [f"127.0.0.1:{peer}" for at, peer in enumerate(self.peers) if at != node]
        begin = ["--join", ",".join(others)] if node > 0 or os.path.exists(store) else ["--cluster-new"]
        command = [self.binary, "serve", "--dir", store, "--resp", f"127.0.0.1:{self.ports[node]}"]
        command += ["--cluster", f"127.0.0.1:{self.peers[node]}", "--cluster-secret", "s", *begin]
        command += ["--memory", "256m", "--capacity-limit", "2g"]
        with open(os.path.join(self.folder, f"log{node}"), "ab") as log:
            self.processes[node] = subprocess.Popen(command, stdout=log, stderr=log)
        self.wait_for_port(node)

    def wait_for_port(self, node):
        """Waits until a node answers, so that the first one has founded the cluster before others join."""
        until = time.monotonic() + REPLICATED_SECONDS_MAX
        while self.status(node) is None:
            if time.monotonic() > until or self.processes[node].poll() is not None:
                raise RuntimeError(f"node {node} does not answer; see log{node}")
            time.sleep(0.1)

    def status(self, node):
        """Returns what a node knows of the cluster; None if it does not answer. `esker` exits with 1 if copies are missing."""
        shown = self.esker("status", node, "--json", "--timeout", "3s")
        try:
            return json.loads(shown.stdout)
        except ValueError:
            return None

    def esker(self, command, node, *arguments):
        words = [self.binary, "cluster", command, *arguments, "--from", f"127.0.0.1:{self.ports[node]}"]
        return subprocess.run(words, capture_output=True, text=True)

    def resting_leaders(self):
        """Returns the leader of each group if all nodes know the same, each leads as many, and all groups have three copies."""
        seen = [self.status(node) for node in range(NODES)]
        if not all(one and one["is_replicated"] for one in seen):
            return None
        leaders = [[group["leader"] for group in one["groups"] if group["slots"]] for one in seen]
        is_spread = all(leaders[0].count(leader) == len(leaders[0]) // NODES for leader in leaders[0])
        return leaders[0] if is_spread and all(one == leaders[0] for one in leaders) else None

    def leader_of(self, slot):
        """Returns the group of a slot, and the index of the node that leads it."""
        until = time.monotonic() + REPLICATED_SECONDS_MAX
        while time.monotonic() < until:
            for status in filter(None, map(self.status, range(NODES))):
                ports = {one["id"]: int(one["resp"].rsplit(":", 1)[1]) for one in status["nodes"]}
                for group in status["groups"]:
                    slots = group["slots"]
                    if slots and slots[0] <= slot <= slots[1] and group["leader"]:
                        return group["group"], self.ports.index(ports[group["leader"]])
            time.sleep(0.1)
        raise RuntimeError(f"slot {slot} has no leader")

    def kill_leader(self, slot):
        """Kills the leader of a slot, and starts it again after an election."""
        group, node = self.leader_of(slot)
        self.processes[node].send_signal(signal.SIGKILL)
        self.processes[node].wait()
        time.sleep(3)
        self.start_node(node)

    def transfer(self, slot):
        """Hands the leadership of a slot to the next node."""
        group, node = self.leader_of(slot)
        to = (node + 1) % NODES
        done = self.esker("transfer", node, str(group), f"127.0.0.1:{self.ports[to]}")
        if done.returncode != 0:
            raise RuntimeError(f"esker cluster transfer: {done.stdout}{done.stderr}")

    def kill(self):
        for process in filter(None, self.processes):
            process.kill()
            process.wait()

    def stop(self):
        """Stops one node after the other. Returns the first exit code other than 0."""
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        return next(filter(None, [process.wait(timeout=60) for process in self.processes]), 0)
