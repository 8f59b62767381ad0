#!/usr/bin/env python3
"""Compares Esker with redis-server, under redis-benchmark.

Both servers run at the same time; short runs of redis-benchmark alternate between them, so that other load on the machine
slows both down. Prints for each kind of run the medians of the rates and of the server's processor time per request, and the
median and the extremes of the ratios of adjacent runs. Needs redis-server and redis-benchmark.

    cargo build --release -p esker-cli
    tests/speed/redis_benchmark.py --esker target/release/esker
    tests/speed/redis_benchmark.py --esker target/release/esker --runs durable --directory /data
"""

import argparse
import csv
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

# name: command, commands per pipeline, requests, True if they are durable, goal for Esker's ratio.
RUNS = {
    "set1": ("set", 1, 100_000, False, 1.0),
    "get1": ("get", 1, 100_000, False, 1.0),
    "set16": ("set", 16, 800_000, False, 1.3),
    "get16": ("get", 16, 800_000, False, 1.3),
    "durable": ("set", 1, 10_000, True, 1.5),
}


class Server:
    """A server process that is ready when the constructor returns."""

    def __init__(self, name, command, port, directory):
        self.name, self.port = name, port
        os.makedirs(directory)
        self.log = open(os.path.join(directory, "log"), "wb")
        self.process = subprocess.Popen(command, cwd=directory, stdout=self.log, stderr=self.log)
        for _ in range(200):
            if self.answers():
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"{name} did not start: see {self.log.name}")

    def answers(self):
        """Returns true if the server has loaded its data; before that it listens, and answers with errors."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as client:
                client.sendall(b"PING\r\n")
                return client.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def processor_seconds(self):
        # The clock ID of another process's processor time, computed like clock_getcpuclockid(3).
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def run(self, command, pipeline, requests, arguments):
        """Returns requests per second, processor microseconds of the server per request, p50 and p99 in milliseconds."""
        before = self.processor_seconds()
        made = subprocess.run(
            ["redis-benchmark", "-p", str(self.port), "-t", command, "-P", str(pipeline), "-n", str(requests),
             "-c", str(arguments.clients), "-d", str(arguments.bytes), "-r", str(arguments.keys), "--csv"],
            capture_output=True, text=True, check=True)
        spent = self.processor_seconds() - before
        row = list(csv.DictReader(line for line in made.stdout.splitlines() if line.startswith('"')))[-1]
        return (float(row["rps"]), spent / requests * 1e6,
                float(row["p50_latency_ms"]), float(row["p99_latency_ms"]))

    def stop(self):
        self.process.terminate()
        self.process.wait(60)
        self.log.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--esker", default="target/release/esker", help="the program to measure")
    parser.add_argument("--other", help="another build of it to measure against, instead of redis-server")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the numbers of requests")
    parser.add_argument("--directory", help="where the servers keep their files; best on the disk that counts")
    parser.add_argument("--port", type=int, default=27900)
    arguments = parser.parse_args()
    if arguments.directory:
        os.makedirs(arguments.directory, exist_ok=True)
    directory = tempfile.mkdtemp(prefix="esker-speed-", dir=arguments.directory)
    failed = False
    try:
        print(f"{'':9}{'esker/s':>9}{'other/s':>9}{'ratio':>7}{'(least to most)':>17}{'goal':>6}"
              f"{'µs each':>9}{'other':>7}{'p50 ms':>8}{'other':>7}{'p99 ms':>8}{'other':>7}")
        for durable in (False, True):
            names = [name for name in arguments.runs if RUNS[name][3] == durable]
            if names:
                failed |= pair(names, durable, os.path.join(directory, str(durable)), arguments)
    finally:
        shutil.rmtree(directory)
    sys.exit(failed)


def pair(names, durable, directory, arguments):
    """Runs both servers and prints a line per kind of run. Returns true if a goal was missed."""

    def esker(name, program, port):
        home = os.path.join(directory, name)
        command = [os.path.abspath(program), "serve", "--dir", os.path.join(home, "store"), "--capacity-limit", "8g",
                   "--durability", "sync" if durable else "none", "--resp", f"127.0.0.1:{port}"]
        return Server(name, command, port, home)

    def redis(name, port):
        durability = ["--appendonly", "yes", "--appendfsync", "always"] if durable else ["--appendonly", "no"]
        return Server(name, ["redis-server", "--port", str(port), "--save", "", *durability], port,
                      os.path.join(directory, name))

    os.makedirs(directory)
    one = esker("esker", arguments.esker, arguments.port)
    try:
        port = arguments.port + 1
        other = esker("other", arguments.other, port) if arguments.other else redis("redis", port)
        try:
            return measure(one, other, names, arguments)
        finally:
            other.stop()
    finally:
        one.stop()


def measure(one, other, names, arguments):
    missed = False
    for name in names:
        command, pipeline, requests, durable, goal = RUNS[name]
        requests = max(int(requests * arguments.scale), arguments.clients * pipeline)
        # Writes every key, and reads each once if the run reads them.
        for server in (one, other):
            server.run("set", 1 if durable else 16, min(10_000, requests) if durable else 8 * arguments.keys, arguments)
            if command == "get":
                server.run("get", 16, 8 * arguments.keys, arguments)
        pairs = []
        for turn in range(arguments.repeat):
            order = (one, other) if turn % 2 == 0 else (other, one)
            found = {server.name: server.run(command, pipeline, requests, arguments) for server in order}
            pairs.append((found[one.name], found[other.name]))
        ratios = sorted(ours[0] / theirs[0] for ours, theirs in pairs)
        ratio = statistics.median(ratios)
        missed |= ratio < goal
        middle = [[statistics.median(both[side][what] for both in pairs) for side in (0, 1)] for what in range(4)]
        (rates, costs, middles, tails) = middle
        print(f"{name:9}{rates[0]:9.0f}{rates[1]:9.0f}{ratio:7.2f}{f'({ratios[0]:.2f} to {ratios[-1]:.2f})':>17}"
              f"{goal:6.1f}{costs[0]:9.2f}{costs[1]:7.2f}{middles[0]:8.2f}{middles[1]:7.2f}{tails[0]:8.2f}{tails[1]:7.2f}",
              flush=True)
    return missed


if __name__ == "__main__":
    main()
