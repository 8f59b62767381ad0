"""Draws arguments of commands: by a rule for each command, and by the key positions of a command without a rule.

`Draw.command` makes a command that is mostly valid; `odd` then drops, adds or replaces words of some commands. Everything is
a function of the random numbers, so that a seed replays it.
"""

from wire import VALUE_BYTES_MAX

KEYS = [b"a", b"b", b"n", b"m", b"h", b"c"]
NUMBERS = b"""0 1 -1 2 3 5 7 8 10 -5 64 100 007 +1 -0 1.5 1e3 3.0e3 0x10 inf -inf nan 1e400 5e-324 9223372036854775807
 -9223372036854775808 9223372036854775808 18446744073709551615 18446744073709551616 2147483648 -2147483649 x""".split()
NUMBERS += [b"", b" 1", b"1 ", b"a\0b", b"\xff", b"1\n"]
# Times to live that would end during a case.
SHORT = {b"%d" % number for number in range(1, 1000)} | {b"007"}
EXPIRING = set(b"set setex psetex getex expire pexpire restore".split())
WORDS = b"""NX XX GT LT GET EX PX EXAT PXAT KEEPTTL PERSIST REPLACE ABSTTL IDLETIME FREQ DB COUNT MATCH TYPE LEN IDX
 MINMATCHLEN WITHMATCHLEN BIT BYTE SET INCRBY OVERFLOW WRAP SAT FAIL AND OR XOR NOT ASYNC SYNC HELP * string 16""".split()
# Times in seconds: too long to end during a case, or in the past.
TIMES = [b"1000", b"5000", b"100000", b"-1", b"0", b"-100", b"9223372036854775807", b"9223372036854775", b"x", b"1.5"]
MOMENTS = [b"4102444800", b"4102444801", b"1", b"1000000000", b"0", b"-1", b"9223372036854775807", b"x"]
# Bit offsets up to the end of the longest value, at it and beyond it.
OFFSETS = [b"0", b"1", b"7", b"8", b"9", b"100", b"#0", b"#3", b"-1", b"x", b"1000"]
LIMIT_BITS = [b"%d" % (VALUE_BYTES_MAX * 8 + more) for more in (-8, -1, 0, 1)]
TYPES = b"u1 u2 u7 u8 u32 u63 i1 i2 i8 i32 i63 i64 u64 i65 u0 x8 i".split()
PATTERNS = [b"*", b"a", b"?", b"[ab]", b"[^a]", b"k*", b"\\*", b"[", b"", b"*a*b*", b"[a-z]"]


def crc64(data, table=[]):
    """Returns the checksum at the end of a DUMP payload."""
    if not table:
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (0x95AC9329AC4BC9B5 if byte & 1 else 0)
            table.append(byte)
    crc = 0
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc


def dumped(value, version=9, checksum=None):
    """Returns a payload of RESTORE for a string."""
    length = bytes([len(value)]) if len(value) < 64 else bytes([64 | len(value) >> 8, len(value) & 255])
    body = b"\0" + length + value + version.to_bytes(2, "little")
    return body + (crc64(body) if checksum is None else checksum).to_bytes(8, "little")


# With an additional odd word they would return facts of the machine, or end or stop other connections.
NO_ODD = {b"client", b"command", b"config", b"wait", b"function", b"module"}


class Draw:
    """Draws commands. `large`: True to include keys and values of the largest lengths."""

    def __init__(self, random, large):
        self.random, self.large = random, large

    def one(self, *choices):
        return self.random.choice(choices)

    def of(self, choices):
        return self.random.choice(choices)

    def chance(self, share):
        return self.random.random() < share

    def some(self, draw, least=1, most=4):
        return [word for _ in range(self.random.randint(least, most)) for word in draw()]

    def key(self):
        if self.chance(0.004):
            return b""
        if self.large and self.chance(0.03):
            return self.of(KEYS)[:1] * self.one(65_535, 65_536, 65_537)
        return self.of(KEYS)

    def number(self):
        return self.of(NUMBERS) if self.chance(0.3) else b"%d" % self.random.randint(-20, 200)

    def value(self):
        match self.random.randrange(10):
            case 0:
                return self.of(NUMBERS)
            case 1:
                return bytes(self.random.randrange(256) for _ in range(self.random.randrange(20)))
            case 2:
                return self.of(KEYS) * self.one(1, 43, 44, 45, 300)
            case 3 if self.large and self.chance(0.2):
                return b"v" * (VALUE_BYTES_MAX + self.one(-1, 0, 0, 0, 1))
            case 4:
                return b"%.*f" % (self.random.randrange(18), self.random.uniform(-1e6, 1e6))
            case _:
                return b"%d" % self.random.randint(-1000, 1000)

    def options(self, *options):
        """Returns some options in any order, each a list of words; seldom one of them twice."""
        chosen = [option for option in options if self.chance(0.35)]
        if chosen and self.chance(0.05):
            chosen.append(self.of(chosen))
        self.random.shuffle(chosen)
        return [word for option in chosen for word in option]

    def when(self):
        """Returns an option that sets an expiry."""
        seconds, word = self.of(TIMES), self.one(b"EX", b"PX", b"EXAT", b"PXAT")
        if word == b"PX":
            return [word, seconds + b"000" if seconds in TIMES[:3] else seconds]
        moment = self.of(MOMENTS)
        return [word, {b"EX": seconds, b"EXAT": moment, b"PXAT": moment + b"000"}[word]]

    def until(self, verb):
        """Returns the time argument of EXPIRE and similar commands."""
        if verb.endswith(b"at"):
            moment = self.of(MOMENTS)
            return moment + b"000" if verb.startswith(b"p") and moment.isdigit() else moment
        seconds = self.of(TIMES)
        return seconds + b"000" if verb.startswith(b"p") and seconds in TIMES[:3] else seconds

    def bit(self, writes=True):
        # Here bits can be read up to 512 MiB, whatever the limit of values is; Redis has the same limit for both.
        return self.of(LIMIT_BITS) if writes and self.large and self.chance(0.02) else self.of(OFFSETS)

    def command(self, verb, positions):
        """Returns a command of a verb, by its rule if it has one. `positions`: arity and first, last and step of its keys."""
        rule = RULES.get(verb)
        words = rule(self, verb) if rule else self.by_positions(*positions)
        command = [word for part in verb.split(b"|") for word in [part]] + words
        if verb not in NO_ODD and self.chance(0.1):
            odd = self.odd(command[1:])
            if verb not in EXPIRING or not SHORT & set(odd) - set(command):
                command[1:] = odd
        if self.chance(0.05):
            command[0] = self.one(command[0].upper(), command[0].title())
        return command

    def by_positions(self, arity, first, last, step):
        """Returns the arguments of a command without a rule."""
        count = max(abs(arity) - 1 + (self.random.randrange(3) if arity < 0 else 0), 0)
        words = [self.one(self.number(), self.value(), self.of(WORDS)) for _ in range(count)]
        if first > 0:
            last = last if last > 0 else count + 1 + last
            for at in range(first, min(last, count) + 1, max(step, 1)):
                words[at - 1] = self.key()
        return words

    def odd(self, words):
        words = list(words)
        at = self.random.randrange(len(words) + 1)
        match self.random.randrange(4):
            case 0 if words:
                del words[min(at, len(words) - 1)]
            case 1 if words:
                words[min(at, len(words) - 1)] = self.of(NUMBERS)
            case 2:
                words.insert(at, self.of(WORDS))
            case _:
                words.append(self.one(self.of(NUMBERS), self.of(WORDS)))
        return words


def keys(least=1, most=3):
    return lambda draw, verb: [draw.key() for _ in range(draw.random.randint(least, most))]


def pairs(draw, verb):
    return draw.some(lambda: [draw.key(), draw.value()], 1, 3)


def key_and(*draws):
    return lambda draw, verb: [draw.key()] + [of(draw) for of in draws]


def expire(draw, verb):
    return [draw.key(), draw.until(verb)] + draw.options([b"NX"], [b"XX"], [b"GT"], [b"LT"])


def set_(draw, verb):
    options = draw.options(draw.when(), [b"KEEPTTL"], [b"NX"], [b"XX"], [b"GET"]) if draw.chance(0.6) else []
    return [draw.key(), draw.value()] + options


def bitfield(draw, verb):
    words = [draw.key()]
    for _ in range(draw.random.randint(1, 4)):
        of, read = [draw.of(TYPES), draw.bit()], [draw.of(TYPES), draw.bit(writes=False)]
        number = b"%d" % draw.random.randint(-300, 300) if draw.chance(0.7) else draw.number()
        words += draw.one([b"GET"] + read, [b"SET"] + of + [number], [b"INCRBY"] + of + [number],
                          [b"OVERFLOW", draw.one(b"WRAP", b"SAT", b"FAIL")])
    return words if verb == b"bitfield" else [words[0]] + draw.some(lambda: [b"GET", draw.of(TYPES), draw.bit(writes=False)], 1, 3)


def bit_range(draw, verb):
    words = [draw.key()] + ([draw.one(b"0", b"1", b"2")] if verb == b"bitpos" else [])
    if draw.chance(0.7):
        words += [draw.number(), draw.number()] + ([draw.one(b"BIT", b"BYTE", b"byte")] if draw.chance(0.5) else [])
    return words


def restore(draw, verb):
    value = draw.value()[:5000]
    payload = dumped(value, draw.one(6, 9, 10, 11), 7 if draw.chance(0.1) else None)
    options = draw.options([b"REPLACE"], [b"ABSTTL"], [b"IDLETIME", b"10"], [b"FREQ", b"5"])
    time = draw.one(b"4102444800000", b"1000") if b"ABSTTL" in options else draw.one(b"0", b"0", b"5000000", b"-1", b"x")
    return [draw.key(), time, payload] + options


def move_copy(draw, verb):
    if verb == b"move":
        return [draw.key(), draw.one(b"0", b"1", b"1", b"16", b"x")]
    return [draw.key(), draw.key()] + draw.options([b"REPLACE"], [b"DB", draw.one(b"0", b"1", b"1", b"16", b"x")])


def lcs(draw, verb):
    return [draw.key(), draw.key()] + draw.options([b"LEN"], [b"IDX"], [b"MINMATCHLEN", draw.number()], [b"WITHMATCHLEN"])


def scan(draw, verb):
    options = draw.options([b"MATCH", draw.of(PATTERNS)], [b"COUNT", draw.one(b"1000", b"1000", b"0", b"x")],
                           [b"TYPE", draw.one(b"string", b"STRING", b"list", b"x")])
    return [draw.one(b"0", b"0", b"0", b"x")] + (options if b"COUNT" in options else options + [b"COUNT", b"1000"])


def getex(draw, verb):
    return [draw.key()] + draw.options(draw.when(), [b"PERSIST"])


def setrange(draw, verb):
    offset = b"%d" % (VALUE_BYTES_MAX - draw.random.randrange(3)) if draw.large and draw.chance(0.1) else draw.number()
    # Offsets between the limit here and Redis' default limit are refused by both for other reasons.
    return [draw.key(), offset, draw.value()]


def flush(draw, verb):
    return draw.one([], [], [b"ASYNC"], [b"SYNC"], [b"x"])


def client(draw, verb):
    return draw.one([b"GETNAME"], [b"SETNAME", draw.one(b"me", b"", b"a b")], [b"NO-EVICT", draw.one(b"on", b"off", b"x")],
                    [b"GETREDIR"], [b"TRACKINGINFO"], [b"CACHING", draw.one(b"yes", b"no", b"x")], [b"ID", b"x"], [b"nosuch"])


def script(draw, verb):
    return draw.one([b"HELP"], [b"EXISTS", b"0" * 40, b"x"], [b"LOAD", b"return 1"], [b"LOAD", b"return"], [b"FLUSH", b"x"], [b"LOAD", b"("])


def object_(draw, verb):
    return [draw.one(b"HELP", b"REFCOUNT", b"ENCODING", b"FREQ", b"IDLETIME", b"x"), draw.key()]


def pubsub(draw, verb):
    return draw.one([b"HELP"], [b"CHANNELS"], [b"CHANNELS", b"c*"], [b"NUMSUB", b"c1", b"c2"], [b"NUMPAT"], [b"SHARDCHANNELS"],
                    [b"SHARDNUMSUB", b"c1"], [b"x"])


def command(draw, verb):
    return draw.one([b"HELP"], [b"COUNT", b"x"], [b"GETKEYS", b"set", b"a", b"1"], [b"GETKEYS", b"mget", b"a", b"b"], [b"x"],
                    [b"GETKEYSANDFLAGS", b"get", draw.key()], [b"INFO", b"get"])


def config(draw, verb):
    return draw.one([b"GET", b"databases"], [b"GET", b"proto-max-bulk-len"], [b"GET", b"nosuch"], [b"GET"], [b"SET", b"x", b"y"], [b"x"], [b"HELP"],
                    [b"RESETSTAT"], [b"REWRITE"])


def function(draw, verb):
    return [b"LIST"] + (draw.options([b"WITHCODE"], [b"LIBRARYNAME", b"*"], [b"x"]) if verb == b"function" else [])


def channel(draw):
    return draw.one(b"c1", b"c2", b"c3")


RULES = {
    b"append": key_and(Draw.value), b"set": set_, b"setnx": key_and(Draw.value), b"getset": key_and(Draw.value),
    b"incrby": key_and(Draw.number), b"decrby": key_and(Draw.number), b"incrbyfloat": key_and(Draw.value),
    b"setex": lambda draw, verb: [draw.key(), draw.until(verb), draw.value()],
    b"psetex": lambda draw, verb: [draw.key(), draw.until(verb), draw.value()],
    b"getrange": key_and(Draw.number, Draw.number), b"substr": key_and(Draw.number, Draw.number), b"setrange": setrange,
    b"getex": getex, b"mset": pairs, b"msetnx": pairs, b"mget": keys(), b"del": keys(), b"unlink": keys(), b"lcs": lcs,
    b"exists": keys(), b"touch": keys(), b"rename": keys(2, 2), b"renamenx": keys(2, 2), b"copy": move_copy, b"move": move_copy,
    b"expire": expire, b"pexpire": expire, b"expireat": expire, b"pexpireat": expire, b"restore": restore,
    b"bitcount": bit_range, b"bitpos": bit_range, b"bitfield": bitfield, b"bitfield_ro": bitfield,
    b"bitop": lambda draw, verb: [draw.one(b"AND", b"or", b"XOR", b"NOT", b"x")] + keys(2, 4)(draw, verb),
    b"setbit": lambda draw, verb: [draw.key(), draw.bit(), draw.one(b"0", b"1", b"1", b"2")],
    b"getbit": lambda draw, verb: [draw.key(), draw.bit(writes=False)],
    b"pfadd": lambda draw, verb: [draw.key()] + draw.some(lambda: [draw.value()], 0, 5), b"pfcount": keys(), b"pfmerge": keys(),
    b"scan": scan, b"keys": lambda draw, verb: [draw.of(PATTERNS)], b"flushall": flush, b"flushdb": flush,
    b"select": lambda draw, verb: [draw.one(b"0", b"1", b"1", b"16", b"x", b"-1")],
    b"swapdb": lambda draw, verb: [draw.one(b"0", b"1", b"16", b"x"), draw.one(b"0", b"1", b"2")],
    b"wait": lambda draw, verb: [b"0", draw.one(b"0", b"10", b"x")], b"echo": lambda draw, verb: [draw.value()],
    b"ping": lambda draw, verb: draw.one([], [draw.value()]), b"client": client, b"script": script, b"object": object_,
    b"pubsub": pubsub, b"command": command, b"config": config,
    b"evalsha": lambda draw, verb: [draw.one(b"0" * 40, b"x"), draw.one(b"0", b"1", b"-1", b"x"), draw.key()],
    b"evalsha_ro": lambda draw, verb: [b"0" * 40, b"0"],
    b"eval_ro": lambda draw, verb: [b"return redis.call('" + draw.one(b"get", b"strlen", b"incr", b"ttl") + b"',KEYS[1])", b"1", draw.key()],
    b"eval": lambda draw, verb: [draw.one(b"return KEYS[1]", b"return {1,2,{3,'x'}}", b"return redis.error_reply('MY e')",
                                          b"error('x')", b"return redis.status_reply('s')", b"return {1,nil,2}", b"return 3.9",
                                          b"return nosuch", b"return (", b"return true", b"return false"), b"1", draw.key()],
    b"function": function, b"module": function,
    b"watch": keys(), b"publish": lambda draw, verb: [channel(draw), draw.value()[:50]],
    b"spublish": lambda draw, verb: [channel(draw), draw.value()[:50]],
    b"subscribe": lambda draw, verb: draw.some(lambda: [channel(draw)], 1, 2),
    b"ssubscribe": lambda draw, verb: draw.some(lambda: [channel(draw)], 1, 2),
    b"psubscribe": lambda draw, verb: [draw.one(b"c*", b"c?", b"*", b"c[12]")],
    b"unsubscribe": lambda draw, verb: draw.some(lambda: [channel(draw)], 0, 2),
    b"sunsubscribe": lambda draw, verb: draw.some(lambda: [channel(draw)], 0, 2),
    b"punsubscribe": lambda draw, verb: draw.one([], [b"c*"], [b"x"]),
}
