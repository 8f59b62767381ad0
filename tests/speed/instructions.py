#!/usr/bin/env python3
"""Counts the instructions of a request: a server runs under callgrind while redis-benchmark sends SETs and GETs.

Prints for each binary and each kind of run the instructions in user mode per request. They hardly depend on other load on the
machine. Neither the kernel nor the reading of the clock counts. Needs valgrind and redis-benchmark. The io_uring backend does not
work under valgrind, so the server uses threads.

    cargo build --release -p esker-cli
    tests/speed/instructions.py target/release/esker
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time

# command, commands per pipeline, requests
RUNS = [("set", 1, 20_000), ("get", 1, 20_000), ("set", 16, 48_000), ("get", 16, 48_000)]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def is_ready(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as client:
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def send(port, command, pipeline, value_bytes, requests):
    subprocess.run(["redis-benchmark", "-p", str(port), "-t", command, "-P", str(pipeline), "-n", str(requests), "-c", "50",
                    "-d", str(value_bytes), "-r", "20000", "-q"], stdout=subprocess.DEVNULL, check=True)


class Counter:
    """Asks a process under callgrind for the instructions since the last question."""

    def __init__(self, process, out):
        self.process, self.out, self.dumps = process, out, 0

    def read(self):
        self.dumps += 1
        subprocess.run(["callgrind_control", "-d", str(self.process.pid)], stdout=subprocess.DEVNULL, check=True)
        path = f"{self.out}.{self.dumps}"
        for _ in range(300):
            if os.path.exists(path):
                with open(path, errors="replace") as dump:
                    found = re.findall(r"^totals: (\d+)", dump.read(), re.M)
                if found:
                    return int(found[-1])
            time.sleep(0.2)
        sys.exit(f"callgrind wrote no {path}")


def measure(binary, directory):
    port, out = free_port(), os.path.join(directory, "callgrind")
    command = [binary, "serve", "--dir", os.path.join(directory, "store"), "--capacity-limit", "4g", "--memory", "512m",
               "--durability", "none", "--backend", "threads", "--resp", f"127.0.0.1:{port}", "--log", "warn"]
    with open(os.path.join(directory, "log"), "wb") as log:
        process = subprocess.Popen(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *command], stdout=log, stderr=log)
    counter = Counter(process, out)
    try:
        while not is_ready(port):
            if process.poll() is not None:
                sys.exit(f"{binary} did not start: {open(log.name, errors='replace').read()}")
            time.sleep(0.2)
        send(port, "set", 16, 100, 40_000)
        for value_bytes in (100, 4096):
            for name, pipeline, requests in RUNS:
                send(port, name, pipeline, value_bytes, 2000)
                counter.read()
                send(port, name, pipeline, value_bytes, requests)
                print(f"{binary}: {name} -P {pipeline}, {value_bytes} B: {counter.read() // requests}", flush=True)
    finally:
        process.terminate()
        process.wait(60)


for binary in sys.argv[1:] or sys.exit(__doc__):
    with tempfile.TemporaryDirectory() as directory:
        measure(binary, directory)
