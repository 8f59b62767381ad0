#!/usr/bin/env python3
"""Runs real Redis clients, from their own registries, against `esker serve`.

    cargo build --release -p esker-cli
    python3 tests/clients/run.py target/release/esker
    python3 tests/clients/run.py target/release/esker --only redis-py,jedis --access plain,tls --log

Each client runs in its own language the tests of `redis_py.py`: the handshake of its library, binary values, pipelines,
transactions with WATCH, expiry, SCAN, numbers, errors, 8 MiB values, a pool, and reading its writes back after a SIGKILL
of the server. Libraries on top of clients are tested for their purpose: a lock has one holder, a limiter lets exactly its
limit pass, a cache expires in time, no increment is lost. Every client runs over RESP2 and RESP3 if it speaks both, and
with each of these kinds of access:

    plain       no password
    password    one password, of the user default
    user        a user that may read and write keys that begin with app:
    tls         that user, over TLS
    cluster     three nodes, no password; for the programs in the folder cluster, which use the cluster mode of their library:
                keys of all slots, pipelines over several, transactions and scripts in one, SCAN of all nodes, sharded and
                plain channels, a transfer of the leadership, and a SIGKILL of a leader while four writers write

Needs Python 3.9. The libraries are installed below --cache and nothing is written elsewhere; the file that names a
library pins its version (requirements.txt, package.json, go.mod, pom.xml, Cargo.toml). A client whose toolchain is
missing (python3 with venv, node and npm, go, java and mvn, cargo, redis-cli, redis-benchmark, chromium, redis_exporter or
prometheus-redis-exporter, as Debian names it) is skipped and listed with the reason. One of the clients is a browser,
which tests the page of `--http`. Exits with 1 if any test failed, and with 2 if none could run.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from clients import CLIENTS, Missing  # noqa: E402
from nodes import Cluster  # noqa: E402
from server import ACCESS, ALONE, Server  # noqa: E402

RUN_SECONDS_MAX = 120


def make_fault(server, line):
    """Does what a client program asks for."""
    if line.startswith("kill the server"):
        server.kill()
        time.sleep(0.3)  # long enough for the client to notice
        server.start()
    elif line.startswith("kill the leader of the slot "):
        server.kill_leader(int(line.split()[-1]))
    elif line.startswith("transfer the slot "):
        server.transfer(int(line.split()[-1]))


def follow(process, server, log):
    """Reads the output of a client, and kills and restarts the server at its request. Returns the number of passed checks."""
    good, said = 0, []
    for line in process.stdout:
        said.append(line)
        if line.startswith("ok "):
            good += 1
        elif line.startswith(("kill", "transfer")):
            make_fault(server, line)
            process.stdin.write("go on\n")
            process.stdin.flush()
        if log:
            sys.stderr.write(f"    {line}")
    return good, said


def attempt(command, folder, environment, server, log):
    """Runs one client to its end. Returns (number of passed checks, problem)."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    alarm = threading.Timer(RUN_SECONDS_MAX, process.kill)
    alarm.start()
    try:
        good, said = follow(process, server, log)
        code = process.wait()
    finally:
        alarm.cancel()
        process.kill()
    if code == 0 and good > 0:
        return good, None
    return good, f"exit code {code} after {good} checks\n" + "".join(said[-25:])


def try_client(client, binary, access, protocol, log):
    tmp = tempfile.mkdtemp(prefix="esker-clients-")
    server = None
    try:
        server = (Cluster if access == "cluster" else Server)(binary, tmp, access)
        command, folder = client.command(server, protocol)
        good, wrong = attempt(command, folder, server.environment(protocol), server, log)
        code = server.stop()
        if wrong is None and code != 0:
            wrong = f"the server ended with exit code {code}"
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        good, wrong = 0, str(error)
    finally:
        if server:
            server.kill()
    if wrong is None:
        shutil.rmtree(tmp)
    else:
        wrong += f"\nthe store and the server's log are left in {tmp}"
    return good, wrong


def table(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary", help="the esker command, such as target/release/esker")
    parser.add_argument("--only", help="clients to run, of: " + ",".join(client.name for client in CLIENTS))
    parser.add_argument("--access", default=",".join(ACCESS), help="of: " + ",".join(ACCESS))
    default = os.path.join(tempfile.gettempdir(), f"esker-clients-{os.getuid()}")
    parser.add_argument("--cache", default=default, help=f"where libraries are kept (default: {default})")
    parser.add_argument("--log", action="store_true", help="show what the clients print")
    arguments = parser.parse_args()
    binary = os.path.abspath(arguments.binary)
    if not os.access(binary, os.X_OK):
        parser.error(f"{binary} is not there; build it with cargo build --release -p esker-cli")
    names = arguments.only.split(",") if arguments.only else [client.name for client in CLIENTS]
    unknown = set(names) - {client.name for client in CLIENTS}
    unknown |= set(arguments.access.split(",")) - set(ACCESS)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    os.makedirs(arguments.cache, exist_ok=True)

    rows = [("client", "protocol", "access", "result", "seconds")]
    failures, skipped, tried = [], [], 0
    for client in (client for client in CLIENTS if client.name in names):
        kinds = [access for access in arguments.access.split(",") if access in getattr(client, "accesses", ALONE)]
        if not kinds:
            continue
        print(f"{client.name}: installing", file=sys.stderr, flush=True)
        try:
            client.install(os.path.abspath(arguments.cache))
        except Missing as why:
            skipped.append((client.name, str(why)))
            print(f"{client.name}: SKIPPED, {why}", file=sys.stderr)
            rows.append((client.name, "-", "-", "SKIPPED", "-"))
            continue
        except (subprocess.CalledProcessError, OSError) as error:
            failures.append((client.name, f"not installed: {error}"))
            rows.append((client.name, "-", "-", "NOT INSTALLED", "-"))
            continue
        for access in kinds:
            for protocol in client.protocols:
                started = time.monotonic()
                good, wrong = try_client(client, binary, access, protocol, arguments.log)
                tried += 1
                result = f"{good} ok" if wrong is None else "FAILED"
                row = (client.name, f"RESP{protocol}", access, result, f"{time.monotonic() - started:.1f}")
                print("  ".join(row), file=sys.stderr, flush=True)
                rows.append(row)
                if wrong is not None:
                    failures.append((" ".join(row[:3]), wrong))
    table(rows)
    for name, why in skipped:
        print(f"\nSKIPPED {name}: {why}")
    for name, why in failures:
        print(f"\nFAILED {name}: {why}")
    sys.exit(1 if failures else 0 if tried else 2)


if __name__ == "__main__":
    main()
