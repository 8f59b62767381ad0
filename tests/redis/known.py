"""The differences from Redis that docs/compatibility.md documents, as far as cases can show them.

Each row quotes the document, so that a row and its sentence stay in step: the program does not start if a quotation is
missing. A row defines exactly the replies that it excuses; a row that excuses nothing in a long run is reported.
"""

import re
from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Row:
    name: str
    # A quotation from docs/compatibility.md, without its line breaks.
    quotation: str
    excuses: Callable
    # True if both servers have the same keys afterwards, so that the rest of the case is compared.
    goes_on: bool = True


def error(reply):
    """Returns the text of an error; empty for other replies."""
    return reply[1] if reply[0] in "-!" else b""


def is_refused_in_multi(of):
    return of.where == "reply" and of.redis == ("+", b"QUEUED") and b"not allowed inside a transaction" in error(of.esker)


def is_refused_in_script(of):
    refused = (b"keys", b"scan", b"randomkey", b"flushall", b"flushdb", b"swapdb", b"wait", b"object", b"pubsub", b"config")
    return of.where == "eval" and of.verb() in refused and b"not allowed from script" in error(of.esker)


def is_missed_when_passed_by(of):
    """Redis publishes a keymiss event for a key that a SCAN finds expired."""
    if of.where != "events" or not of.expires:
        return False
    theirs, ours = ([event for event in row[1] if b"keymiss" not in event[1]] for row in (of.redis, of.esker))
    scanned = any(step.verb() == b"scan" for step in of.case.steps)
    return scanned and theirs == ours and len(of.redis[1]) > len(of.esker[1])


def is_deleted_after_expiry(of):
    """Redis keeps an expired key until a command finds it; BITOP deletes it first, and publishes an event."""
    if of.where != "events" or not of.expires:
        return False
    bitop = any(words[0].lower() == b"bitop" for step in of.case.steps for words in step.calls or [step.words])
    theirs, ours = (list(row[1]) for row in (of.redis, of.esker))
    more = [event for event in theirs if b"del" in event[1]]
    return bitop and len(theirs) > len(ours) and without(theirs, more) == without(ours, more)


def without(events, left_out):
    return [event for event in events if event not in left_out]


def is_encoding(of):
    encodings = [("$", b"int"), ("$", b"embstr"), ("$", b"raw")]
    counts = [(":", 1), (":", 2_147_483_647)]
    return of.verb() == b"object" and any(of.redis in those and of.esker in those for those in (encodings, counts))


def is_use(of):
    """In a transaction the key may exist at one moment and not at another."""
    is_asked = of.verb() == b"object" and of.words[1].lower() in (b"freq", b"idletime")
    return is_asked and (of.where == "exec" or of.redis[0] == of.esker[0] == ":")


def is_flushed(of):
    """Here tracking clients are notified that all keys are invalid; Redis sends no notification."""
    flush = (">", [("$", b"invalidate"), ("_", b"")])
    ours = [[reply for reply in row if reply != flush] for _, row in of.esker[1]]
    return [row for _, row in of.redis[1]] == ours


def is_kept_by_noloop(of):
    """Here all keys that Redis invalidates are invalidated, and others too."""
    options = [word.lower() for step in of.case.steps for word in step.words if step.words[0].lower() == b"client"]
    if of.where != "heard" or b"noloop" not in options:
        return False
    for (_, theirs), (_, ours) in zip(of.redis[1], of.esker[1]):
        more = list(ours)
        for reply in theirs:
            if reply not in more:
                return False
            more.remove(reply)
        if not all(reply[0] == ">" and reply[1][0] == ("$", b"invalidate") for reply in more):
            return False
    return True


def is_undeclarable(of, length):
    """A script names an impossible key, which is therefore not in its KEYS."""
    is_named = any(len(word) == length for word in of.words[1:])
    return of.where == "eval" and is_named and b"non declared key" in error(of.esker)


def is_heard_in_another_order(of):
    """Each connection received the same messages, in any order."""
    if of.where != "heard":
        return False
    rows = zip(of.redis[1], of.esker[1])
    return all(sorted(map(repr, theirs[1])) == sorted(map(repr, ours[1])) for theirs, ours in rows)


def is_unsubscribed_in_another_order(of):
    return of.verb() in (b"unsubscribe", b"punsubscribe", b"sunsubscribe") and len(of.words) == 1 and of.where in ("reply", "heard")


def is_in_another_order(of):
    """The replies have the same elements, in any order."""
    theirs, ours = elements(of.redis), elements(of.esker)
    return theirs is not None and ours is not None and sorted(map(repr, theirs)) == sorted(map(repr, ours))


def has_cursor(of):
    """A SCAN that continues from a cursor, or returns one."""
    replies = [reply[1][0][1] for reply in (of.redis, of.esker) if reply[1]]
    return of.words[1] != b"0" or any(cursor != b"0" for cursor in replies)


def elements(reply):
    """Returns the keys of a finished SCAN or of KEYS."""
    kind, value = reply
    if kind != "*" or not isinstance(value, list):
        return None
    if len(value) == 2 and value[1][0] == "*":
        return value[1][1] if value[0] == ("$", b"0") else None
    return value


ROWS = [
    Row(
        "the empty key",
        "**The empty key** is refused.",
        lambda of: b"key of 0 bytes" in error(of.esker) or is_undeclarable(of, 0),
        goes_on=False,
    ),
    Row(
        "keys above 65,536 bytes",
        "Keys have up to 65,536 bytes.",
        lambda of: b"key of 65537 bytes" in error(of.esker) or is_undeclarable(of, 65_537),
        goes_on=False,
    ),
    Row(
        "commands refused in a transaction",
        "These are refused in a transaction: `FLUSHALL`, `FLUSHDB`, `SWAPDB`, `KEYS`, `RANDOMKEY`, `SCAN`, `WAIT`",
        is_refused_in_multi,
        goes_on=False,
    ),
    Row(
        "commands refused in a script",
        "KEYS, SCAN, RANDOMKEY, INFO and others of the server are refused.",
        is_refused_in_script,
        goes_on=False,
    ),
    Row(
        "RESTORE of a newer version",
        "RESTORE takes payloads of any version.",
        lambda of: of.verb() == b"restore" and b"version or checksum" in error(of.redis) and of.esker == ("+", b"OK"),
        goes_on=False,
    ),
    Row(
        "a message to oneself",
        "A connection that publishes to itself (RESP3) gets the answer before the message.",
        lambda of: of.verb() in (b"publish", b"spublish") and of.case.protocol == 3 and of.redis[0] == ">" and of.esker[0] == ":",
        goes_on=False,
    ),
    Row(
        "the order of SCAN and KEYS",
        "**SCAN** walks the keys in the order of their hashes",
        lambda of: of.verb() in (b"scan", b"keys") and of.where in ("reply", "exec") and is_in_another_order(of),
    ),
    Row(
        "the order of subscriptions",
        "A command that names no channel ends subscriptions in the order of their names",
        is_unsubscribed_in_another_order,
    ),
    Row(
        "the order of messages of several patterns",
        "messages of several patterns of one client come in the order of the patterns",
        lambda of: of.verb() in (b"publish", b"spublish") and is_heard_in_another_order(of),
    ),
    Row(
        "the order of PUBSUB CHANNELS",
        "PUBSUB lists names in sorted order",
        lambda of: of.verb() == b"pubsub" and of.where in ("reply", "exec") and is_in_another_order(of),
    ),
    Row(
        "memory of a transaction",
        "A transaction whose values and answers could take more is refused with `EXECABORT`",
        lambda of: b"EXECABORT" in error(of.esker) and b"client-memory-each" in error(of.esker),
        goes_on=False,
    ),
    Row(
        "expired keys that SCAN meets",
        "Redis reports `keymiss` for a key that SCAN finds expired",
        is_missed_when_passed_by,
    ),
    Row(
        "expired keys that BITOP deletes",
        "a `del` of an expired key that BITOP deletes",
        is_deleted_after_expiry,
    ),
    Row(
        "OBJECT ENCODING",
        "**OBJECT** answers as Redis does for a value that was written by SET",
        is_encoding,
    ),
    Row(
        "OBJECT FREQ and IDLETIME",
        "IDLETIME is a lower bound of the time since the last use",
        is_use,
    ),
    Row(
        "cursors of SCAN",
        "with cursors that stay valid across restarts",
        lambda of: of.verb() == b"scan" and of.redis[0] == of.esker[0] == "*" and has_cursor(of),
    ),
    Row(
        "BITFIELD over the limit",
        "BITFIELD may not write beyond `argument-limit` either; Redis lets the last integer end up to eight bytes",
        lambda of: of.verb() == b"bitfield" and b"exceeds maximum allowed size" in error(of.esker) and of.redis[0] == "*",
        goes_on=False,
    ),
    Row(
        "arguments above the limit",
        "An argument of more than `argument-limit` is an error that names the setting, and the connection stays open",
        lambda of: b"(argument-limit)" in error(of.esker) and (of.redis[0] == "broken" or b"Protocol error" in error(of.redis)),
        goes_on=False,
    ),
    Row(
        "SWAPDB and CLIENT TRACKING",
        "and so does SWAPDB, for which Redis sends nothing",
        lambda of: of.where == "heard" and of.verb() == b"swapdb" and is_flushed(of),
        goes_on=False,
    ),
    Row(
        "the order of invalidations",
        "Keys that one pipeline, transaction or script changes may be invalidated in another order than they changed in",
        lambda of: of.case.mode == "tracking" and is_heard_in_another_order(of),
    ),
    Row(
        "bytes of a script in its errors",
        "A byte of a script that is not UTF-8 is shown as U+FFFD in the error of its compilation",
        lambda of: b"\xef\xbf\xbd" in error(of.esker) and b"compiling script" in error(of.redis),
    ),
    Row(
        "HELP",
        "**HELP** of CLIENT, MEMORY and SCRIPT lists the subcommands that exist here",
        lambda of: of.verb() == b"script" and of.words[1].lower() == b"help",
    ),
    Row(
        "LCS of long values",
        "**LCS** compares as many bytes as Redis does with a `proto-max-bulk-len` of 512 MiB",
        lambda of: of.verb() == b"lcs" and b"transient memory for LCS exceeds" in error(of.redis)
        and (not error(of.esker) or b"(client-memory-each)" in error(of.esker)),
    ),
    Row(
        "bits behind the limit",
        "Bits are read up to 512 MiB, whatever the limit is",
        lambda of: of.verb() in (b"getbit", b"bitfield", b"bitfield_ro")
        and b"bit offset is not an integer or out of range" in error(of.redis)
        # A later operation of the same command may be refused for another reason.
        and (of.esker[0] in ":*" or of.verb() != b"getbit" and b"Invalid bitfield type" in error(of.esker)),
        goes_on=False,
    ),
    Row(
        "NOLOOP",
        "With NOLOOP a key stays tracked when its client writes it",
        is_kept_by_noloop,
    ),
    Row(
        "RANDOMKEY",
        "**RANDOMKEY** looks at no more than about 10,000 keys",
        lambda of: of.verb() == b"randomkey" and of.redis[0] == of.esker[0] == "$" and None not in (of.redis[1], of.esker[1]),
    ),
    Row(
        "expired keys in DBSIZE",
        "They leave DBSIZE within a second or two",
        lambda of: of.verb() == b"dbsize" and of.expires and of.redis[0] == of.esker[0] == ":" and of.redis[1] > of.esker[1],
    ),
]


def missing_quotations(document):
    """Returns the rows whose quotation is missing in the document."""
    text = re.sub(r"\s+", " ", document)
    return [row for row in ROWS if row.quotation not in text]


def find(difference):
    """Returns the row that excuses a difference, if any."""
    return next((row for row in ROWS if row.excuses(difference)), None)
