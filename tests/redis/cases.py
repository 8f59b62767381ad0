"""Cases: a list of steps on one to three connections, from empty databases to a comparison of all keys and events.

A case is a function of the seed and its number. Both servers get the same steps, one after the other; a step ends when both
servers have replied. So every difference is caused by the servers.
"""

import random
from dataclasses import dataclass, field, replace

from draw import Draw
from wire import Broken, Client

MODES = ["plain", "pipeline", "multi", "eval", "connections", "watch", "listen", "tracking"]

# Drawn less often: they empty the databases, or their replies show little.
SELDOM = set(b"""flushall flushdb swapdb select echo ping dbsize wait command config function module script object pubsub
 publish spublish client""".split())
SUBSCRIBING = set(b"subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe".split())
TRANSACTION = set(b"multi exec discard watch unwatch".split())
# Not queued, because EXEC would contain more than one reply for each of them.
NOT_IN_MULTI = SUBSCRIBING | TRANSACTION | set(b"client eval evalsha eval_ro evalsha_ro script function module".split())
# Drawn seldom in a transaction or a script, where the server refuses them.
REFUSED = set(b"keys scan randomkey flushall flushdb swapdb wait object pubsub config".split())
# Commands whose replies are remaining or absolute times, which vary.
CLOCKS = set(b"ttl pttl expiretime pexpiretime".split())
DATABASES = (0, 1, 2)


@dataclass(frozen=True)
class Step:
    """A command or script of one connection."""

    connection: int
    words: tuple = ()
    # Commands called by a script, instead of `words`.
    calls: tuple = ()
    # True if it is sent in one write with the next step of this connection.
    joined: bool = False

    def command(self):
        return script_of(self.calls) if self.calls else list(self.words)

    def verb(self):
        return b"eval" if self.calls else self.words[0].lower()


@dataclass(frozen=True)
class Case:
    number: int
    mode: str
    protocol: int
    steps: tuple
    connections: int

    def with_steps(self, steps):
        return replace(self, steps=tuple(steps))


@dataclass
class Difference:
    """Two replies that differ. `where`: reply, exec, eval, heard, keys or events."""

    case: Case
    at: int
    where: str
    words: list
    redis: tuple
    esker: tuple
    # True if an earlier step set an expiry in the past.
    expires: bool = False

    def verb(self):
        return self.words[0].lower() if self.words else b""


def script_of(calls):
    """Returns a script that calls the commands and returns all replies. Every word may be a key, and is declared as one."""
    words, lines = [], []
    for call in calls:
        named = ",".join(f"ARGV[{len(words) + at}]" for at in range(1, len(call) + 1))
        words += call
        lines.append(f"t[#t+1]=redis.pcall({named}) if t[#t]==nil then t[#t+1]='NIL' end".encode())
    keys = sorted({word for word in words if 0 < len(word) <= 65_536})
    return [b"EVAL", b"local t={} " + b" ".join(lines) + b" return t", b"%d" % len(keys), *keys, *words]


class Maker:
    """Draws cases. `verbs`: arity and key positions of each command."""

    def __init__(self, seed, verbs):
        self.seed, self.verbs = seed, verbs

    def make(self, number, mode=None):
        rng = random.Random(f"{self.seed}:{number}")
        drawn = rng.choice(MODES)
        mode, protocol = mode or drawn, rng.choice((2, 3))
        self.rng, self.draw, self.protocol = rng, Draw(rng, large=rng.random() < 0.15), protocol
        steps = getattr(self, mode)()
        return Case(number, mode, protocol, tuple(steps), 1 + max(step.connection for step in steps))

    def any(self, without=frozenset(), seldom=frozenset()):
        names = [name for name in self.verbs if name not in without]
        while True:
            name = self.rng.choice(names)
            if name in seldom and self.rng.random() < 0.95:
                continue
            if name not in SELDOM or self.rng.random() < 0.25:
                return tuple(self.draw.command(name, self.verbs[name]))

    def plain(self, count=40, connection=0):
        without = SUBSCRIBING | {b"multi", b"exec", b"watch"}
        return [Step(connection, self.any(without)) for _ in range(count)]

    def pipeline(self):
        return [replace(step, joined=self.rng.random() < 0.8) for step in self.plain()]

    def transaction(self, connection):
        end = b"EXEC" if self.rng.random() < 0.9 else b"DISCARD"
        words = [(b"MULTI",), *(self.any(NOT_IN_MULTI, REFUSED) for _ in range(self.rng.randint(1, 8))), (end,)]
        joined = self.rng.random() < 0.5
        return [Step(connection, tuple(of), joined=joined) for of in words]

    def multi(self):
        return [step for _ in range(6) for step in self.plain(2) + self.transaction(0)]

    def script(self, connection):
        # Commands that a script may call in Redis, one or several.
        without = NOT_IN_MULTI | {b"command"}
        return Step(connection, calls=tuple(self.any(without, REFUSED) for _ in range(self.rng.randint(1, 6))))

    def eval(self):
        steps = []
        for _ in range(8):
            steps += self.plain(2) + [self.script(0)]
        return [replace(step, joined=self.rng.random() < 0.3) for step in steps]

    def connections(self):
        rows = [self.plain(10, at) + self.transaction(at) + self.plain(4, at) for at in range(self.rng.choice((2, 3)))]
        return self.interleaved(rows)

    def interleaved(self, rows):
        steps = []
        while rows := [row for row in rows if row]:
            steps.append(self.rng.choice(rows).pop(0))
        return steps

    def watch(self):
        """Draws a connection that watches keys and runs a transaction, and others that write in all ways."""
        steps = []
        for _ in range(5):
            watched = [Step(0, tuple(self.draw.command(b"watch", (-2, 1, -1, 1)))) for _ in range(self.rng.randint(1, 2))]
            mine = watched + self.plain(self.rng.randrange(2)) + self.transaction(0)
            other = self.rng.choice((1, 2))
            joined = self.rng.random() < 0.6
            ways = [
                lambda: [replace(step, joined=joined) for step in self.plain(self.rng.randint(1, 4), other)],
                lambda: self.transaction(other),
                lambda: [self.script(other)],
                lambda: self.come_and_go(other, joined),
            ]
            theirs = self.rng.choice(ways)()
            at = self.rng.randint(len(watched), len(mine))
            steps += mine[:at] + theirs + mine[at:] if self.rng.random() < 0.7 else self.interleaved([mine, theirs])
        return steps

    def come_and_go(self, connection, joined):
        """Draws steps that put and delete a key, in one write, transaction or script, or separately."""
        key = self.draw.key()
        put = self.rng.choice([(b"incr", key), (b"append", key, b"x"), (b"set", key, b"1", b"NX"), (b"setbit", key, b"1", b"1")])
        gone = self.rng.choice([(b"del", key), (b"getdel", key), (b"expireat", key, b"1"), (b"set", key, b"1", b"PXAT", b"1")])
        words = [put, gone] if self.rng.random() < 0.8 else [gone]
        if self.rng.random() < 0.3:
            return [Step(connection, calls=tuple(words))]
        if self.rng.random() < 0.4:
            words = [(b"MULTI",), *words, (b"EXEC",)]
        return [Step(connection, of, joined=joined) for of in words]

    def listen(self):
        """Draws connections that subscribe, and one that publishes and writes."""
        subscribing = sorted(SUBSCRIBING & set(self.verbs))
        steps = []
        for _ in range(25):
            if self.rng.random() < 0.5:
                name = self.rng.choice(subscribing)
                steps.append(Step(self.rng.choice((0, 1)), tuple(self.draw.command(name, self.verbs[name]))))
            else:
                name = self.rng.choice((b"publish", b"publish", b"spublish", b"pubsub"))
                steps.append(Step(self.rng.choice((2, 2, 2, 0)), tuple(self.draw.command(name, self.verbs[name]))))
        return steps

    def tracking(self):
        """Draws a connection that is notified of changed keys, and others that read and write."""
        options = self.draw.options([b"NOLOOP"], [self.rng.choice((b"OPTIN", b"OPTOUT"))])
        steps = [Step(0, (b"CLIENT", b"TRACKING", b"ON", *options))]
        if self.protocol == 2 and self.rng.random() < 0.3:
            steps.append(Step(0, (b"SUBSCRIBE", b"c1")))
        reads = [name for name in (b"get", b"mget", b"exists", b"strlen", b"ttl", b"bitcount") if name in self.verbs]
        for _ in range(20):
            if self.rng.random() < 0.3:
                steps.append(Step(0, (b"CLIENT", b"CACHING", self.rng.choice((b"YES", b"NO"))), joined=True))
            elif self.rng.random() < 0.5:
                name = self.rng.choice(reads)
                steps.append(Step(0, tuple(self.draw.command(name, self.verbs[name]))))
            elif self.rng.random() < 0.3:
                steps += self.come_and_go(1, joined=True)
            else:
                steps += self.plain(1, self.rng.choice((0, 1, 1)))
        return steps


class Runner:
    """Runs cases on both servers."""

    def __init__(self, redis, esker):
        self.servers = (redis, esker)
        self.admins = [Client(server.port) for server in self.servers]
        self.ears = [Client(server.port) for server in self.servers]
        for ear in self.ears:
            ear.call("PSUBSCRIBE", "__key*__:*")
            ear.call("SUBSCRIBE", "fuzz")
        self.sent = {}
        self.commands = 0

    def run(self, case, is_known):
        """Returns the differences of a case. `is_known` returns true for a documented difference after which the comparison
        can continue; the case ends at the first for which it returns false."""
        for admin in self.admins:
            admin.call("FLUSHALL")
        rows = [[Client(server.port) for _ in range(case.connections)] for server in self.servers]
        try:
            if case.protocol == 3:
                for client in rows[0] + rows[1]:
                    client.call("HELLO", "3")
            return self.run_steps(case, rows, is_known)
        finally:
            for client in rows[0] + rows[1]:
                client.close()
            # Drains the events, so that none appears among those of the next case.
            self.events()

    def run_steps(self, case, rows, is_known):
        found, at, self.expires = [], 0, False
        self.queued, self.early = {}, {}
        while at < len(case.steps):
            group = [case.steps[at]]
            while group[-1].joined and at + len(group) < len(case.steps):
                following = case.steps[at + len(group)]
                if following.connection != group[0].connection:
                    break
                group.append(following)
            commands = [step.command() for step in group]
            for step in group:
                self.count(step)
            for row in rows:
                row[group[0].connection].send(*commands)
            for offset, step in enumerate(group):
                pair = [self.answer(row[step.connection], case) for row in rows]
                self.expires |= any(may_expire(words) for words in step.calls or [step.words])
                for difference in self.compare(case, at + offset, step, *pair):
                    found.append(difference)
                    if not is_known(difference):
                        return found
                if "broken" in (pair[0][0], pair[1][0]):
                    return found
            at += len(group)
            if listens(case):
                heard = [[self.heard(client) for client in row] for row in rows]
                if heard[0] != heard[1]:
                    words = ("*", [("*", of) for of in heard[0]]), ("*", [("*", of) for of in heard[1]])
                    found.append(Difference(case, at - 1, "heard", commands[-1], *words))
                    if not is_known(found[-1]):
                        return found
        for difference in self.compare_ends(case):
            found.append(difference)
            if not is_known(difference):
                break
        return found

    def count(self, step):
        for words in step.calls or [step.words]:
            self.commands += 1
            names = [words[0].lower()] + ([words[0].lower() + b"|" + words[1].lower()] if len(words) > 1 else [])
            for name in names:
                self.sent[name] = self.sent.get(name, 0) + 1

    def answer(self, client, case):
        """Returns the reply to a command. Invalidations that precede it are kept for `heard`."""
        try:
            reply = client.reply()
            while case.mode == "tracking" and reply[0] == ">":
                self.early.setdefault(client, []).append(reply)
                reply = client.reply()
            return reply
        except Broken as broken:
            return "broken", str(broken).encode()

    def heard(self, client):
        """Returns all pushes to a connection."""
        heard = self.early.pop(client, [])
        try:
            # Invalidations may follow the first answer.
            for token in (b"fuzz-1", b"fuzz-2"):
                client.send([b"PING", token])
                while token_of(reply := client.reply()) != token:
                    heard.append(reply)
        except Broken as broken:
            heard.append(("broken", str(broken).encode()))
        return heard

    def compare(self, case, at, step, redis, esker):
        """Returns the differences of a reply; for a transaction and a script, those of each command."""
        verb, key = step.verb(), step.connection
        if verb == b"exec":
            of, where = self.queued.pop(key, []), "exec"
        elif step.calls:
            of, where = list(step.calls), "eval"
        else:
            of, where = None, "reply"
            if verb == b"multi" or verb == b"discard":
                self.queued[key] = []
            elif redis == esker == ("+", b"QUEUED"):
                self.queued.setdefault(key, []).append(list(step.words))
        if of is not None and all(is_list(reply, len(of)) for reply in (redis, esker)):
            triples = zip(of, redis[1], esker[1])
        else:
            triples, where = [(step.command(), redis, esker)], where if of is None else where + " as a whole"
        for words, theirs, ours in triples:
            if not same(words, theirs, ours):
                yield Difference(case, at, where, list(words), theirs, ours, self.expires)

    def compare_ends(self, case):
        """Returns the differences of all keys, and of the events."""
        last = len(case.steps) - 1
        for database in DATABASES:
            keys = []
            for admin in self.admins:
                admin.call("SELECT", database)
                keys.append(sorted(key for _, key in admin.call("KEYS", "*")[1]))
            if keys[0] != keys[1]:
                as_reply = [("*", [("$", key) for key in of]) for of in keys]
                yield Difference(case, last, "keys", [b"KEYS", b"of database %d" % database], *as_reply, self.expires)
                continue
            commands = [[verb, key] for key in keys[0] for verb in (b"GET", b"PEXPIRETIME")]
            for admin in self.admins:
                admin.send(*commands)
            # All replies are read before the first difference may end the comparison.
            rows = [[admin.reply() for _ in commands] for admin in self.admins]
            for words, redis, esker in zip(commands, *rows):
                if not same(words, redis, esker):
                    yield Difference(case, last, "keys", words, redis, esker, self.expires)
        redis, esker = self.events()
        if redis != esker:
            yield Difference(case, last, "events", [b"events"], ("*", redis), ("*", esker), self.expires)

    def events(self):
        """Returns all events since the last call, in each server's order. The time of an expiry event is up to the server."""
        rows = []
        for admin, ear in zip(self.admins, self.ears):
            admin.call("PUBLISH", "fuzz", "end")
            row = []
            while (reply := ear.reply())[1][0] != ("$", b"message"):
                channel, payload = reply[1][2][1], reply[1][3][1]
                if payload != b"expired" and not channel.endswith(b"__:expired"):
                    row.append(("$", channel + b" " + payload))
            rows.append(row)
        return rows


def listens(case):
    return case.mode in ("listen", "tracking")


def token_of(reply):
    """Returns the token of the PING that this reply answers, also for a subscriber."""
    kind, value = reply
    if kind in "*>" and value and value[0] == ("$", b"pong"):
        return value[1][1]
    return value if kind == "$" else None


def may_expire(words):
    options = {b"ex", b"px", b"exat", b"pxat", b"absttl"}
    lower = [word.lower() for word in words[:12]]
    return b"expire" in lower[0] or lower[0] in (b"setex", b"psetex") or any(word in options for word in lower)


def is_list(reply, length):
    return reply[0] in "*~" and reply[1] is not None and len(reply[1]) == length


def same(words, redis, esker):
    """Returns true if two replies to a command are equal, except for elapsed time."""
    if redis == esker:
        return True
    if words and words[0].lower() in CLOCKS and redis[0] == esker[0] == ":":
        slack = 10_000 if words[0].lower().startswith(b"p") else 10
        return min(redis[1], esker[1]) > 0 and abs(redis[1] - esker[1]) <= slack
    return False
