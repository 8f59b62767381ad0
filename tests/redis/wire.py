"""Two servers on loopback, and a client that reads RESP2 and RESP3 without losing the type of a reply.

A reply is a tuple `(type, value)`: the type is the first byte of its line, and the value is bytes, an int, None or a list of
replies. `(">", …)` is a push; pushes are returned like replies, in the order of arrival.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time

# Limit of values in both servers, small so that values at the limit are cheap.
VALUE_BYTES_MAX = 1 << 20

# All events, including those of new and missed keys.
EVENTS = "AKEnm"


class Broken(Exception):
    """The server closed the connection, or sent bytes that are not a reply."""


class Client:
    """One connection."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb", buffering=1 << 16)

    def send(self, *commands):
        """Sends commands, each a sequence of bytes, in one write."""
        with contextlib.suppress(OSError):
            # A closed connection is detected by the missing reply.
            self.socket.sendall(b"".join(encoded(words) for words in commands))

    def call(self, *words):
        self.send([word if isinstance(word, bytes) else str(word).encode() for word in words])
        return self.reply()

    def reply(self):
        try:
            line = self.stream.readline()
        except OSError as error:
            raise Broken(str(error)) from error
        if not line.endswith(b"\r\n"):
            raise Broken(f"the connection ended behind {line!r}")
        kind, rest = chr(line[0]), line[1:-2]
        if kind in "+-,#(_":
            return kind, rest
        if kind == ":":
            return kind, int(rest)
        if kind in "$=!":
            length = int(rest)
            if length < 0:
                return kind, None
            body = self.stream.read(length + 2)
            if len(body) < length + 2:
                raise Broken(f"the connection ended in a string of {length} bytes")
            return kind, body[:-2]
        if kind in "*~>%":
            count = int(rest)
            if count < 0:
                return kind, None
            return kind, [self.reply() for _ in range(count * 2 if kind == "%" else count)]
        raise Broken(f"{line!r} is no reply")

    def close(self):
        self.stream.close()
        self.socket.close()


def encoded(words):
    """Returns an encoded command."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


class Server:
    """A process that serves RESP in its own directory, until it is stopped."""

    def __init__(self, name, directory, process, port):
        self.name, self.directory, self.process, self.port = name, directory, process, port

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def is_running(self):
        return self.process.poll() is None


def start_esker(binary):
    directory = tempfile.mkdtemp(prefix="esker-fuzz-")
    log = open(os.path.join(directory, "log"), "wb")
    command = [binary, "serve", "--dir", os.path.join(directory, "store"), "--resp", "127.0.0.1:0", "--memory", "256m"]
    command += ["--durability", "none", "--argument-limit", str(VALUE_BYTES_MAX), "--notify-keyspace-events", EVENTS]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    line = process.stdout.readline().decode()
    found = re.search(r"127\.0\.0\.1:(\d+)", line)
    if not found:
        process.kill()
        raise SystemExit(f"{binary} did not start: {line!r}; see {directory}/log")
    return Server("esker", directory, process, int(found[1]))


def start_redis(binary):
    directory = tempfile.mkdtemp(prefix="redis-fuzz-")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", directory]
    command += ["--proto-max-bulk-len", str(VALUE_BYTES_MAX), "--notify-keyspace-events", EVENTS]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server = Server("redis", directory, process, port)
    for _ in range(500):
        try:
            client = Client(port)
            version = client.call("INFO", "server")[1]
            client.close()
        except (OSError, Broken):
            time.sleep(0.02)
            continue
        found = re.search(rb"redis_version:(\S+)", version or b"")
        if not found or not found[1].startswith(b"7.0."):
            server.stop()
            raise SystemExit(f"{binary} is Redis {found and found[1].decode()}; the documents are about 7.0")
        return server
    server.stop()
    raise SystemExit(f"{binary} did not start on port {port}")
