"""How each client is installed below a cache directory, and run."""

import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


class Missing(Exception):
    """A toolchain is not there."""


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Missing(f"there is no {program}")


def call(*command, cwd=None, **variables):
    """Runs it; its output is shown if it fails."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True)
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
        done.check_returncode()
    return done.stdout


def copy(folder, *names):
    """A folder of the cache with these files, since package managers write beside them."""
    os.makedirs(folder, exist_ok=True)
    for name in names:
        shutil.copy(os.path.join(HERE, name), folder)
    return folder


class RedisPy:
    name, protocols = "redis-py", (2, 3)

    def install(self, cache):
        folder = os.path.join(cache, "python")
        self.python = os.path.join(folder, "bin", "python")
        try:
            import ensurepip  # noqa: F401
            import venv  # noqa: F401
        except ImportError as error:
            raise Missing(f"this Python has no venv with pip ({error})") from error
        if not os.path.exists(self.python):
            call(sys.executable, "-m", "venv", folder)
        call(self.python, "-m", "pip", "install", "--quiet", "--requirement", os.path.join(HERE, "requirements.txt"))

    def command(self, server, protocol):
        return [self.python, os.path.join(HERE, "redis_py.py")], HERE


class Node:
    def __init__(self, name, program, protocols):
        self.name, self.program, self.protocols = name, program, protocols

    def install(self, cache):
        need("node", "npm")
        self.folder = copy(os.path.join(cache, "node"), "package.json", "node_redis.mjs", "ioredis.mjs")
        call("npm", "install", "--no-audit", "--no-fund", cwd=self.folder, npm_config_cache=os.path.join(cache, "npm"))

    def command(self, server, protocol):
        return ["node", self.program], self.folder


class GoRedis:
    name, protocols = "go-redis", (2, 3)

    def install(self, cache):
        need("go")
        folder = copy(os.path.join(cache, "go", "program"), "go_redis/main.go", "go_redis/go.mod", "go_redis/go.sum")
        self.program = os.path.join(cache, "go", "exercise")
        # The cache of modules is made writable, so that whoever made it can remove it.
        kept = {"GOMODCACHE": os.path.join(cache, "go", "modules"), "GOCACHE": os.path.join(cache, "go", "build")}
        call("go", "build", "-modcacherw", "-o", self.program, ".", cwd=folder, **kept)

    def command(self, server, protocol):
        return [self.program], HERE


class Jedis:
    name, protocols = "jedis", (2, 3)

    def install(self, cache):
        need("java", "javac", "mvn")
        folder = copy(os.path.join(cache, "java"), "jedis/pom.xml", "jedis/Exercise.java")
        local = "-Dmaven.repo.local=" + os.path.join(cache, "maven")
        call("mvn", "-q", "-B", local, "compile", "dependency:copy-dependencies", cwd=folder)
        target = os.path.join(folder, "target")
        self.path = os.path.join(target, "classes") + os.pathsep + os.path.join(target, "libraries", "*")

    def command(self, server, protocol):
        return ["java", "-cp", self.path, "Exercise"], HERE


class Tool:
    """redis-cli or redis-benchmark, which take the same options for who and where."""

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
    """The page of those who watch. It speaks no RESP, and is tried once."""

    name, protocols = "browser", (2,)

    def install(self, cache):
        from browser import BROWSERS

        if not any(map(shutil.which, BROWSERS)):
            raise Missing("there is no " + " or ".join(BROWSERS))

    def command(self, server, protocol):
        return [sys.executable, os.path.join(HERE, "browser.py")], HERE


CLIENTS = (
    RedisPy(),
    Node("node-redis", "node_redis.mjs", (2, 3)),
    Node("ioredis", "ioredis.mjs", (2,)),
    GoRedis(),
    Jedis(),
    Tool("redis-cli", (2, 3)),
    Tool("redis-benchmark", (2,)),
    Browser(),
)
