"""Compares the fields of INFO that Redis has and the server lacks with their list in docs/compatibility.md."""

import fnmatch
import re

from wire import Client

# The sentence of the document that lists the missing fields.
LIST = re.compile(r"These fields of Redis 7\.0 are absent,(.*?`)\.\s", re.DOTALL)


def names(server):
    client = Client(server.port)
    text = client.call("INFO")[1].decode()
    client.close()
    return {line.split(":", 1)[0] for line in text.splitlines() if ":" in line and not line.startswith("#")}


def check(redis, esker, document):
    """Returns a line for each absent field that is not listed, and for each entry of the list that matches no absent field."""
    found = LIST.search(document)
    patterns = re.findall(r"`([^`]+)`", found[1]) if found else []
    absent = names(redis) - names(esker)
    missing = [name for name in sorted(absent) if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    idle = [pattern for pattern in patterns if not fnmatch.filter(absent, pattern)]
    return [f"INFO has no {name}, and docs/compatibility.md does not say so" for name in missing] + [
        f"docs/compatibility.md lists {pattern} as absent from INFO, which it is not" for pattern in idle
    ]
