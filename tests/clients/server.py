"""The server for the clients: `esker serve` with its own directory and port."""

import os
import signal
import socket
import subprocess
import threading

ALONE = ("plain", "password", "user", "tls")
ACCESS = (*ALONE, "cluster")
USER, WATCHER, PASSWORD = "ann", "watcher", "correct horse"
# Prefixes of keys, and prefixes that libraries add to names.
PREFIXES = ("app:",)
PREFIXES += ("key:", "counter:")  # redis-benchmark
PREFIXES += ("redlock:", "nextid:")  # Pottery
PREFIXES += ("rate:",)  # redis_rate
PREFIXES += ("redisson_", "{app:")  # channels and second keys of Redisson
START_SECONDS_MAX = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_certificate(folder):
    """Makes a self-signed certificate of 127.0.0.1 and localhost. Returns (certificate, key)."""
    cert, key = os.path.join(folder, "server.pem"), os.path.join(folder, "server.key")
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", names, "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", cert]
    try:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(f"no certificate can be made with openssl: {error}") from error
    return cert, key


class Server:
    """Restarts on the same port after a kill, so that clients find it."""

    def __init__(self, binary, folder, access):
        self.access, self.folder, self.port = access, folder, free_port()
        self.http = f"127.0.0.1:{free_port()}"
        self.process, self.certificate = None, None
        self.socket = os.path.join(folder, "esker.sock")
        self.variables = {**os.environ}
        at = f"127.0.0.1:{self.port}"
        flags = ["--dir", os.path.join(folder, "store"), "--http", self.http, "--unix-socket", self.socket]
        if access == "password":
            self.variables["ESKER_PASSWORD"] = PASSWORD
        if access in ("user", "tls"):
            users = os.path.join(folder, "users.toml")
            prefixes = [word for prefix in PREFIXES for word in ("--prefix", prefix)]
            for name, options in ((USER, ["--rights", "read,write", *prefixes]), (WATCHER, ["--rights", "monitor"])):
                command = [binary, "user", "add", name, "--users", users, *options]
                added = subprocess.run(command, input=PASSWORD + "\n", text=True, capture_output=True)
                if added.returncode != 0:
                    raise RuntimeError(f"esker user add: {added.stderr}")
            flags += ["--users", users]
        if access == "tls":
            self.certificate, key = make_certificate(folder)
            flags += ["--resp", "none", "--resp-tls", at, "--tls-cert", self.certificate, "--tls-key", key]
        else:
            flags += ["--resp", at]
        self.command = [binary, "serve", *flags]
        self.start()

    def environment(self, protocol):
        """Returns the environment variables for client programs."""
        users = self.access in ("user", "tls")
        return {
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "SOCKET": self.socket,
            "HTTP": f"http://{self.http}/",
            "PROTOCOL": str(protocol),
            "LOGIN": USER if users else "",
            "WATCHER": WATCHER if users else "",
            "PASSWORD": "" if self.access == "plain" else PASSWORD,
            "CA": self.certificate or "",
        }

    def start(self):
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(self.command, env=self.variables, stdout=subprocess.PIPE, stderr=log)
        alarm = threading.Timer(START_SECONDS_MAX, self.process.kill)
        alarm.start()
        ready = self.process.stdout.readline()
        alarm.cancel()
        if not ready.startswith(b"ready"):
            code = self.process.wait()
            raise RuntimeError(f"the server did not become ready (exit code {code}): {' '.join(self.command)}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)
