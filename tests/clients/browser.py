"""Tests the page at `/` in a real browser: it updates, fits a phone, and survives a restart of the server. See run.py.

    python3 tests/clients/run.py target/release/esker --only browser --log
    SCREENSHOTS=docs/pictures python3 tests/clients/run.py target/release/esker --only browser --access plain

Uses the browser's own protocol (CDP) over two pipes, so that no library is needed.
"""

import base64
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

PATIENCE = 30
PHONE, DESK = (360, 780), (1180, 960)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def good(what):
    print(f"ok {what}", flush=True)


class Browser:
    """One page of a headless browser."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="esker-browser-")
        here_reads, there_writes = os.pipe()
        there_reads, here_writes = os.pipe()

        def pipes():  # the browser requires descriptors 3 and 4, which the pipes may already have
            reads, writes = os.dup(there_reads), os.dup(there_writes)
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        program = next(filter(None, map(shutil.which, BROWSERS)))
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        flags += ["--remote-debugging-pipe", f"--user-data-dir={self.folder}", "about:blank"]
        self.process = subprocess.Popen(
            [program, *flags], preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(there_writes)
        os.close(there_reads)
        self.reads, self.writes = os.fdopen(here_reads, "rb"), os.fdopen(here_writes, "wb")
        self.number, self.answers, self.errors, self.session = 0, {}, [], None
        self.arrived = threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()
        page = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")

    def listen(self):
        text = b""
        while piece := self.reads.read1(1 << 16):
            *messages, text = (text + piece).split(b"\0")
            for message in map(json.loads, messages):
                with self.arrived:
                    if "id" in message:
                        self.answers[message["id"]] = message
                        self.arrived.notify_all()
                    else:
                        self.note(message["method"], message["params"])

    def note(self, method, params):
        """Records errors that a console would show, except that a stopped server cannot be reached."""
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description", "?"))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str([a.get("value") for a in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            entry = params["entry"]
            if "net::ERR_" not in entry["text"]:
                self.errors.append(f"{entry['text']} ({entry.get('url', '')})")

    def ask(self, method, **params):
        with self.arrived:
            self.number += 1
            number = self.number
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.writes.write(json.dumps(message).encode() + b"\0")
        self.writes.flush()
        with self.arrived:
            if not self.arrived.wait_for(lambda: number in self.answers, PATIENCE):
                raise RuntimeError(f"the browser does not answer {method}")
            answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def value(self, expression):
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, what, expression):
        """Waits until the expression is true in the page."""
        deadline = time.monotonic() + PATIENCE
        while not self.value(expression):
            if time.monotonic() > deadline:
                seen = self.value("document.body.innerText")
                raise RuntimeError(f"{what}: not seen in {PATIENCE} seconds in:\n{seen}\n{self.errors}")
            time.sleep(0.1)
        good(what)

    def size(self, size):
        width, height = size
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, name):
        folder = os.environ.get("SCREENSHOTS")
        if folder:
            os.makedirs(folder, exist_ok=True)
            shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=False)
            with open(os.path.join(folder, name), "wb") as file:
                file.write(base64.b64decode(shot["data"]))

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Load:
    """Writes and reads until it is stopped."""

    def __init__(self):
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def connect(self):
        stream = socket.create_connection((os.environ["HOST"], int(os.environ["PORT"])), PATIENCE)
        if os.environ["CA"]:
            stream = ssl.create_default_context(cafile=os.environ["CA"]).wrap_socket(stream, server_hostname="localhost")
        if os.environ["PASSWORD"]:
            self.call(stream, b"AUTH", (os.environ["LOGIN"] or "default").encode(), os.environ["PASSWORD"].encode())
        return stream

    @staticmethod
    def call(stream, *words):
        text = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        stream.sendall(text)
        stream.recv(1 << 16)

    def run(self):
        number = 0
        try:
            stream = self.connect()
            while not self.ending.is_set():
                key = b"app:%d" % (number * 7919 % 4000)
                self.call(stream, b"SET", key, os.urandom(16_000), b"DURABILITY", b"NONE")
                self.call(stream, b"GET", b"app:1")
                number += 1
        except OSError:
            pass  # the server was killed

    def stop(self):
        self.ending.set()
        self.thread.join()


def log_in(browser):
    """Logs in like a browser whose user has typed name and password."""
    if os.environ["PASSWORD"]:
        browser.ask("Page.navigate", url=os.environ["HTTP"])
        browser.wait("nothing is shown without a login", "!document.getElementById('tiles')")
        browser.errors.clear()  # the refusal of the page
        who = f"{os.environ['LOGIN'] or 'default'}:{os.environ['PASSWORD']}"
        secret = "Basic " + base64.b64encode(who.encode()).decode()
        browser.ask("Network.setExtraHTTPHeaders", headers={"Authorization": secret})


def exercise(browser):
    serving = "document.getElementById('state').className === 'serving'"
    cells = "[...document.getElementById('maps').children].map(box => box.dataset.cells).join()"
    puts = "document.querySelectorAll('.tile b')[1].textContent !== '0'"
    log_in(browser)
    browser.size(DESK)
    browser.ask("Page.navigate", url=os.environ["HTTP"])
    browser.wait("the page shows the server", f"document.getElementById('state') && {serving}")
    browser.wait("it shows a map of segments", f"{cells} !== ''")
    load = Load()
    browser.wait("it shows puts", puts)
    before = json.dumps(browser.value(cells))
    browser.wait("the map moves under load", f"{cells} !== {before}")
    browser.wait("it shows percentiles", "document.querySelectorAll('#percentiles tr').length > 3")
    browser.wait("it has drawn latencies for some seconds", "points.length > 12")
    browser.picture("web.png")
    browser.size(PHONE)
    time.sleep(0.5)  # a resize is drawn in the next frame
    wide = browser.value("document.documentElement.scrollWidth")
    if wide > PHONE[0]:
        raise RuntimeError(f"at the width of a phone the page is {wide} wide")
    good("it fits a phone")
    # Numbers as long as they can get, in one line each, and no table wider than its section.
    browser.value(
        "last.latencies.forEach(l => Object.assign(l, {per_s: 123456, p50_us: 23456, p99_us: 99999, p999_us: 987654,"
        " max_us: 12345678})); draw()"
    )
    broken = browser.value(
        "[...document.querySelectorAll('td:not(:first-child)')].filter(td => td.textContent"
        " && Math.round(td.getBoundingClientRect().height) > 0 && (() => { const range = document.createRange();"
        " range.selectNodeContents(td); return range.getClientRects().length > 1; })()).map(td => td.textContent)"
    )
    wide = browser.value(
        "[...document.querySelectorAll('table')].filter(t => t.scrollWidth > t.parentElement.clientWidth).map(t => t.id)"
    )
    if broken or wide:
        raise RuntimeError(f"at the width of a phone numbers are broken ({broken}), or tables too wide ({wide})")
    good("its tables can be read on a phone")
    # A week has 604,800 samples: the page keeps the same number however many arrive.
    kept = browser.value("draw = () => {}; for (let at = 0; at < 604800; at++) show(last); points.length")
    if kept != browser.value("POINTS"):
        raise RuntimeError(f"after a week the page keeps {kept} samples")
    good("its history is bounded after a week")
    browser.ask("Page.reload")
    browser.wait("it draws again", "typeof points !== 'undefined' && points.length > 2")
    browser.value("document.getElementById('latency').scrollIntoView()")
    browser.picture("web-phone.png")
    load.stop()
    if browser.errors:
        raise RuntimeError(f"errors in the console: {browser.errors}")
    good("no errors in the console")
    print("kill the server", flush=True)
    sys.stdin.readline()
    browser.wait("it shows the server again after a restart", f"{serving} && last.uptime_s < 30")
    if browser.errors:
        raise RuntimeError(f"errors in the console: {browser.errors}")
    good("no errors in the console after a restart")


def main():
    browser = Browser()
    try:
        exercise(browser)
    except RuntimeError as error:
        print(f"FAILED {error}")
        sys.exit(1)
    finally:
        browser.close()


if __name__ == "__main__":
    main()
