"""Shared by the Python programs: address and credentials from HOST, PORT, PROTOCOL, LOGIN, PASSWORD and CA (see run.py),
and the functions of a check."""

import os
import threading
from urllib.parse import quote

login = os.environ.get("LOGIN") or None
password = os.environ.get("PASSWORD") or None
authority = os.environ.get("CA") or None
protocol = int(os.environ["PROTOCOL"])


def url(database=0):
    """Returns the URL of a database for Redis clients."""
    who = f"{quote(login or '')}:{quote(password)}@" if password else ""
    where = f"{who}{os.environ['HOST']}:{os.environ['PORT']}/{database}?protocol={protocol}"
    if authority:
        return f"rediss://{where}&ssl_cert_reqs=required&ssl_ca_certs={quote(authority, safe='')}"
    return f"redis://{where}"


def same(found, expected):
    if found != expected:
        raise AssertionError(f"expected {str(expected)[:200]}, found {str(found)[:200]}")


def fails(kind, work, text=""):
    """Checks that the work fails, with this kind of error and this text in its message."""
    try:
        found = work()
    except kind as error:
        return same((text in f"{error}", f"{error}"), (True, f"{error}"))
    raise AssertionError(f"expected {kind}, found {found}")


def in_threads(count, work):
    """Runs the work for each number below the count, in its own thread. Returns the results."""
    done, wrong = [None] * count, []

    def run(number):
        try:
            done[number] = work(number)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    same(wrong, [])
    return done


def hold(*checks):
    for check in checks:
        check()
        print("ok", check.__name__, flush=True)
