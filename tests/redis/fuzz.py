#!/usr/bin/env python3
"""Compares a server with redis-server 7.0: random commands, the same to both, reply by reply, with all keys and events.

    python3 tests/redis/fuzz.py target/release/esker --commands 100000 --seed 1

Needs Python 3 and a redis-server 7.0, nothing else. The commands are those of the server's COMMAND LIST. They run alone, in
pipelines, in transactions, in scripts, on several connections, beside WATCH, and with subscribers and client-side caching, in
RESP2 and RESP3. A difference that docs/compatibility.md does not document ends the run with exit code 1: the case is minimized
to a few steps, and the command that replays it is printed. `known.py` lists the documented differences.
"""

import argparse
import os
import shutil
import sys
import time
from dataclasses import replace

from cases import MODES, Maker, Runner
from fields import check
from known import ROWS, find, missing_quotations
from wire import Broken, Client, start_esker, start_redis

HERE = os.path.dirname(os.path.abspath(__file__))
DOCUMENT = os.path.join(HERE, "..", "..", "docs", "compatibility.md")

# Commands that no case sends: the test that compares them, or the reason why they cannot be compared.
NOT_GENERATED = {
    b"acl": "needs users: crates/server/tests/protocol/users.rs and admins.rs compare it",
    b"auth": "needs users: crates/server/tests/protocol/users.rs",
    b"bgsave": "writes files",
    b"cluster": "one sentence of its own",
    b"debug": "one sentence of its own",
    b"dump": "payloads differ by version: a RESTORE of both is compared in crates/server/tests/protocol/redis.rs",
    b"hello": "each connection of RESP3 begins with it; options are in crates/server/tests/protocol/corpus.txt",
    b"info": "facts of the machine; crates/server/tests/protocol/info.rs compares the fields",
    b"lastsave": "a moment", b"time": "a moment", b"role": "in corpus.txt",
    b"latency": "facts of the machine", b"slowlog": "facts of the machine", b"memory": "facts of the machine",
    b"monitor": "changes the connection: crates/server/tests/safety/monitor.rs",
    b"quit": "ends the connection", b"reset": "crates/server/tests/protocol/session.rs", b"shutdown": "ends the server",
    b"waitaof": "Redis has it since 7.2",
    b"client": "what tells facts of the connection, and what ends or stops others",
    b"script|kill": "there is nothing to end", b"command|docs": "words of its own", b"command|list": "each server's commands",
}
SHRINKS_MAX = 400


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary", help="the esker program")
    parser.add_argument("--commands", type=int, default=20_000, help="commands to send to each server, at least")
    parser.add_argument("--seed", default="1", help="of all cases")
    parser.add_argument("--case", type=int, help="run this case alone, and print its steps")
    parser.add_argument("--mode", choices=MODES, help="only cases of this mode")
    parser.add_argument("--without", action="append", default=[], help="a command not to send, so that others are seen")
    parser.add_argument("--failures", type=int, default=10, help="end after so many undocumented differences")
    parser.add_argument("--redis", default="redis-server", help="the redis-server to compare with")
    return parser.parse_args()


def verbs_of(server):
    """Returns the commands of a server with their arity and key positions."""
    client = Client(server.port)
    names = [name.lower() for _, name in client.call("COMMAND", "LIST")[1]]
    tops = [name for name in names if b"|" not in name]
    facts = client.call(*[b"COMMAND", b"INFO"], *tops)[1]
    client.close()
    return names, {name: tuple(fact[1][at][1] for at in (1, 3, 4, 5)) for name, fact in zip(tops, facts)}


class Fuzz:
    def __init__(self, options, redis, esker):
        self.options, self.redis, self.esker = options, redis, esker
        self.names, verbs = verbs_of(esker)
        left_out = set(NOT_GENERATED) - {b"client"} | {name.encode() for name in options.without}
        drawn = {name: facts for name, facts in verbs.items() if name not in left_out}
        self.maker, self.runner = Maker(options.seed, drawn), Runner(redis, esker)
        self.excused, self.failures, self.unstable = {}, [], 0
        self.by_mode = dict.fromkeys(MODES, 0)

    def is_known(self, difference):
        """Returns true if the case can continue after a difference; without counting it."""
        row = find(difference)
        return row is not None and row.goes_on

    def undocumented(self, case):
        return [found for found in self.runner.run(case, self.is_known) if find(found) is None]

    def step(self, number):
        case = self.maker.make(number, self.options.mode)
        before = self.runner.commands
        found = self.runner.run(case, self.is_known)
        self.by_mode[case.mode] += self.runner.commands - before
        for difference in found:
            row = find(difference)
            if row:
                self.excused[row.name] = self.excused.get(row.name, 0) + 1
            else:
                self.report(difference)

    def report(self, difference):
        case = difference.case
        if not any(self.undocumented(case) for _ in range(3)):
            self.unstable += 1
            print(f"seen once and not in three repetitions: {explained(difference)}", flush=True)
            return
        short, last = self.shrink(case, difference)
        self.failures.append(last)
        chosen = f"--seed {self.options.seed} --case {case.number}"
        chosen += f" --mode {self.options.mode}" if self.options.mode else ""
        chosen += "".join(f" --without {name}" for name in self.options.without)
        print(f"\nDIFFERENCE in {case.mode}, RESP{case.protocol}")
        print(f"  replay: python3 tests/redis/fuzz.py {self.options.binary} {chosen}")
        for step in short.steps:
            print(f"  {step.connection}> {shown_words(step.command())}{'  # joined' if step.joined else ''}")
        print(f"  {explained(last)}", flush=True)

    def shrink(self, case, difference):
        """Removes steps, and calls of scripts, as long as a difference of the same command remains."""
        def fails(candidate):
            found = self.undocumented(candidate)
            alike = [of for of in found if of.verb() == difference.verb() and of.where.split()[0] == difference.where.split()[0]]
            return alike[0] if alike else None

        case, left, size = case.with_steps(case.steps[: difference.at + 1]), SHRINKS_MAX, max(len(case.steps) // 2, 1)
        last = difference
        while size >= 1 and left > 0:
            at, smaller = 0, False
            while at < len(case.steps) and left > 0:
                candidate = case.with_steps(case.steps[:at] + case.steps[at + size :])
                left -= 1
                again = fails(candidate) if candidate.steps else None
                if again:
                    case, last, smaller = candidate, again, True
                else:
                    at += size
            size = size if smaller and size == 1 else size // 2
        for at, step in enumerate(case.steps):
            for call in range(len(step.calls) - 1, -1, -1):
                calls = case.steps[at].calls
                if len(calls) == 1:
                    break
                fewer = replace(case.steps[at], calls=calls[:call] + calls[call + 1 :])
                candidate = case.with_steps(case.steps[:at] + (fewer,) + case.steps[at + 1 :])
                again = fails(candidate)
                if again:
                    case, last = candidate, again
        return case, last

    def summary(self, took):
        runner = self.runner
        print(f"\n{runner.commands} commands in {took:.0f} s, seed {self.options.seed}")
        print("  " + ", ".join(f"{mode} {count}" for mode, count in self.by_mode.items() if count))
        for name, count in sorted(self.excused.items()):
            print(f"  documented: {name} ({count})")
        never = [row.name for row in ROWS if row.name not in self.excused]
        if never and runner.commands >= 100_000 and not self.options.mode:
            print("  documented and not met: " + ", ".join(never))
        for name in self.names:
            if not runner.sent.get(name) and not {name, name.split(b"|")[0]} & set(NOT_GENERATED):
                print(f"  NOT GENERATED: {name.decode()}")
        left_out = sorted({part for name in self.names for part in (name, name.split(b"|")[0])} & set(NOT_GENERATED))
        print("  not generated, for a reason: " + ", ".join(name.decode() for name in left_out))
        print(f"  undocumented differences: {len(self.failures)}; seen once: {self.unstable}")


def shown(reply, most=300):
    """Formats a reply on one line."""
    kind, value = reply
    if isinstance(value, list):
        text = f"{kind}[" + ", ".join(shown(of, 100) for of in value) + "]"
    else:
        text = kind + (repr(value)[1:] if isinstance(value, bytes) else str(value))
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def shown_words(words):
    def word(of):
        text = repr(of)[2:-1]
        return f"<{len(of)} bytes {text[:8]}…>" if len(of) > 2000 else f'"{text}"' if not text or " " in text else text

    return " ".join(word(of) for of in words)


def explained(difference):
    where = f"{shown_words(difference.words)} ({difference.where})"
    return f"{where}\n    redis {shown(difference.redis)}\n    esker {shown(difference.esker)}"


def run(options, document, redis, esker):
    fields = check(redis, esker, document)
    print("\n".join(fields), end="\n" if fields else "")
    fuzz = Fuzz(options, redis, esker)
    began, number = time.monotonic(), 0
    if options.case is not None:
        case = fuzz.maker.make(options.case, options.mode)
        for step in case.steps:
            print(f"{step.connection}> {shown_words(step.command())}")
        fuzz.step(options.case)
    else:
        while fuzz.runner.commands < options.commands and len(fuzz.failures) < options.failures:
            fuzz.step(number)
            number += 1
    fuzz.summary(time.monotonic() - began)
    return 1 if fuzz.failures or fields else 0


def main():
    options = arguments()
    with open(DOCUMENT, encoding="utf-8") as file:
        document = file.read()
    missing = missing_quotations(document)
    if missing:
        sys.exit("docs/compatibility.md does not say:\n" + "\n".join(f"  {row.name}: {row.quotation}" for row in missing))
    if not shutil.which(options.redis):
        sys.exit(f"SKIPPED: there is no {options.redis} on this machine; nothing was compared (apt-get install redis-server)")
    redis = start_redis(options.redis)
    try:
        esker = start_esker(options.binary)
        try:
            return run(options, document, redis, esker)
        except Broken as broken:
            state = "runs" if esker.is_running() else f"ended with {esker.process.returncode}"
            sys.exit(f"{broken}: esker {state}")
        finally:
            esker.stop()
    finally:
        redis.stop()


if __name__ == "__main__":
    sys.exit(main())
