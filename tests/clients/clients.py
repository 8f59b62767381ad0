"""Installs each client below a cache directory, and runs it."""

import functools
import glob
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


class Missing(Exception):
    """A toolchain is missing."""


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Missing(f"there is no {program}")


def call(*command, cwd=None, **variables):
    """Runs a command; prints its output if it fails."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True)
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
        done.check_returncode()
    return done.stdout


def copy(folder, *names):
    """Copies files to a folder of the cache, because package managers write beside them."""
    os.makedirs(folder, exist_ok=True)
    for name in names:
        shutil.copy(os.path.join(HERE, name), folder)
    return folder


@functools.cache
def python_with(cache, requirements):
    """Makes a virtual environment with the packages of a requirements file. Returns its Python."""
    folder = os.path.join(cache, requirements.removesuffix(".txt"))
    python = os.path.join(folder, "bin", "python")
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        raise Missing(f"this Python has no venv with pip ({error})") from error
    if not os.path.exists(python):
        call(sys.executable, "-m", "venv", folder)
    call(python, "-m", "pip", "install", "--quiet", "--requirement", os.path.join(HERE, requirements))
    return python


class Python:
    def __init__(self, name, program, requirements="requirements.txt"):
        self.name, self.program, self.requirements, self.protocols = name, program, requirements, (2, 3)

    def install(self, cache):
        self.python = python_with(cache, self.requirements)

    def command(self, server, protocol):
        return [self.python, "-B", os.path.join(HERE, self.program)], HERE


class Exporter(Python):
    """Debian's package has another name; it speaks RESP2, and redis-py writes the keys that it counts."""

    def __init__(self):
        super().__init__("redis_exporter", "redis_exporter.py")
        self.protocols = (2,)

    def install(self, cache):
        found = filter(None, map(shutil.which, ("redis_exporter", "prometheus-redis-exporter")))
        self.exporter = next(found, None)
        if not self.exporter:
            raise Missing("there is neither redis_exporter nor prometheus-redis-exporter")
        super().install(cache)

    def command(self, server, protocol):
        command, folder = super().command(server, protocol)
        return ["env", "EXPORTER=" + self.exporter, *command], folder


@functools.cache
def packages_of_node(cache):
    programs = glob.glob("*.mjs", root_dir=HERE) + glob.glob("cluster/*.mjs", root_dir=HERE)
    folder = copy(os.path.join(cache, "node"), "package.json", *programs)
    call("npm", "install", "--no-audit", "--no-fund", cwd=folder, npm_config_cache=os.path.join(cache, "npm"))
    return folder


class Node:
    def __init__(self, name, program, protocols=(2,)):
        self.name, self.program, self.protocols = name, program, protocols

    def install(self, cache):
        need("node", "npm")
        self.folder = packages_of_node(cache)

    def command(self, server, protocol):
        return ["node", self.program], self.folder


class Go:
    def __init__(self, name, source):
        self.name, self.source, self.protocols = name, source, (2, 3)

    def install(self, cache):
        need("go")
        files = [os.path.join(self.source, name) for name in ("main.go", "go.mod", "go.sum")]
        folder = copy(os.path.join(cache, "go", self.source), *files)
        self.program = os.path.join(folder, "exercise")
        # The module cache is made writable, so that its owner can remove it.
        kept = {"GOMODCACHE": os.path.join(cache, "go", "modules"), "GOCACHE": os.path.join(cache, "go", "build")}
        call("go", "build", "-modcacherw", "-o", self.program, ".", cwd=folder, **kept)

    def command(self, server, protocol):
        return [self.program], HERE


class Java:
    def __init__(self, name, source):
        self.name, self.source, self.protocols = name, source, (2, 3)

    def install(self, cache):
        need("java", "javac", "mvn")
        files = [os.path.join(self.source, name) for name in ("pom.xml", "Exercise.java")]
        folder = copy(os.path.join(cache, "java", self.source), *files)
        local = "-Dmaven.repo.local=" + os.path.join(cache, "maven")
        call("mvn", "-q", "-B", local, "compile", "dependency:copy-dependencies", cwd=folder)
        target = os.path.join(folder, "target")
        self.path = os.path.join(target, "classes") + os.pathsep + os.path.join(target, "libraries", "*")

    def command(self, server, protocol):
        return ["java", "-cp", self.path, "Exercise"], HERE


class Rust:
    name, protocols = "redis-rs", (2, 3)

    def install(self, cache):
        need("cargo")
        target = os.path.join(cache, "rust")
        manifest = os.path.join(HERE, "redis_rs", "Cargo.toml")
        call("cargo", "build", "--quiet", "--locked", "--manifest-path", manifest, "--target-dir", target)
        self.program = os.path.join(target, "debug", "redis_rs")

    def command(self, server, protocol):
        return [self.program], HERE


class Tool:
    """redis-cli or redis-benchmark, which have the same options for user and address."""

    def __init__(self, name, protocols):
        self.name, self.protocols = name, protocols

    def install(self, cache):
        need(self.name, "sh")

    def command(self, server, protocol):
        known = server.environment(protocol)
        options = ["-h", known["HOST"], "-p", known["PORT"]]
        if known["LOGIN"]:
            options += ["--user", known["LOGIN"]]
        if known["PASSWORD"]:
            options += ["-a", known["PASSWORD"]]
        if known["CA"]:
            options += ["--tls", "--cacert", known["CA"]]
        return ["sh", os.path.join(HERE, self.name + ".sh"), *options], HERE


class Browser:
    """The monitoring page. It does not use RESP, and is tested once."""

    name, protocols = "browser", (2,)

    def install(self, cache):
        from browser import BROWSERS

        if not any(map(shutil.which, BROWSERS)):
            raise Missing("there is no " + " or ".join(BROWSERS))

    def command(self, server, protocol):
        return [sys.executable, os.path.join(HERE, "browser.py")], HERE


def in_cluster(client):
    """Returns a client whose program is for a cluster of three nodes."""
    client.accesses = ("cluster",)
    return client


CLIENTS = (
    Python("redis-py", "redis_py.py"),
    Python("redis-py+hiredis", "redis_py.py", "requirements-hiredis.txt"),
    Node("node-redis", "node_redis.mjs", (2, 3)),
    Node("ioredis", "ioredis.mjs"),
    Go("go-redis", "go_redis"),
    Java("jedis", "jedis"),
    Rust(),
    # Libraries that use one of those clients, or derive from one.
    Python("redis-py.asyncio", "redis_asyncio.py"),
    Python("redlock-py", "redlock_py.py"),
    Python("pottery", "pottery_lock.py"),
    Python("limits", "limits_py.py"),
    Python("django-redis", "django_cache.py"),
    Python("flask-caching", "flask_cache.py"),
    Python("celery", "celery_results.py"),
    Node("redlock", "redlock.mjs"),
    Node("rate-limiter-flexible", "rate_limiter.mjs"),
    Node("bullmq", "bullmq.mjs"),
    Go("go-locks", "go_locks"),
    Java("spring-data-redis", "spring"),
    Java("redisson", "redisson"),
    # Clients in cluster mode.
    in_cluster(Python("redis-py.cluster", "cluster/redis_py.py")),
    in_cluster(Node("ioredis.cluster", "cluster_ioredis.mjs")),
    in_cluster(Node("node-redis.cluster", "cluster_node_redis.mjs", (2, 3))),
    in_cluster(Go("go-redis.cluster", "cluster/go_redis")),
    in_cluster(Java("jedis.cluster", "cluster/jedis")),
    in_cluster(Java("lettuce.cluster", "cluster/lettuce")),
    # Tools.
    Tool("redis-cli", (2, 3)),
    Tool("redis-benchmark", (2, 3)),
    Exporter(),
    Browser(),
)
