#!/usr/bin/env python3
"""Measures Esker on sparse drives of up to 1 PiB, which take only the blocks that are written.

A drive is a loop device over a sparse file on XFS, which is itself an image in DIR. Needs root, mkfs.xfs (Debian: xfsprogs)
and 30 GB in DIR.

    cargo build --release -p esker-cli
    sudo tests/speed/large_drives.py --esker target/release/esker --directory DIR
    sudo tests/speed/large_drives.py --esker target/release/esker --directory DIR --only opening
"""

import argparse
import atexit
import os
import random
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "redis"))
import wire  # noqa: E402  the directory is known now

TB = 10**12
KEYS = 1_000_000
BATCH = 5_000


class Drives:
    """Loop devices over sparse files, removed at the end."""

    def __init__(self, directory):
        self.image, self.mount, self.devices = f"{directory}/large-drives.img", f"{directory}/large-drives", []
        atexit.register(self.remove)
        os.makedirs(self.mount, exist_ok=True)
        with open(self.image, "wb") as image:
            image.truncate(30 << 30)
        run("mkfs.xfs", "-q", "-f", self.image)
        run("mount", "-o", "loop", self.image, self.mount)

    def new(self, drive_bytes):
        path = f"{self.mount}/{len(self.devices)}"
        with open(path, "wb") as file:
            file.truncate(drive_bytes)
        device = run("losetup", "--find", "--show", "--sector-size", "4096", "--direct-io=on", path).strip()
        # The space is freed when the device is detached.
        os.unlink(path)
        self.devices.append(device)
        return device

    def drop(self, device):
        run("losetup", "--detach", device)
        self.devices.remove(device)

    def remove(self):
        for device in self.devices:
            subprocess.call(["losetup", "--detach", device])
        if os.path.ismount(self.mount):
            subprocess.call(["umount", self.mount])
        if os.path.exists(self.image):
            os.unlink(self.image)
            os.rmdir(self.mount)


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


class Server:
    """A server on one drive; killed if it is not stopped."""

    def __init__(self, esker, device, *flags, memory="512m"):
        command = [esker, "serve", "--capacity", device, "--resp", "127.0.0.1:0", "--memory", memory]
        began = time.monotonic()
        command += ["--compression", "off", "--durability", "none", "--log", "warn", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        atexit.register(self.kill)
        found = re.search(r"127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        if not found:
            sys.exit(f"the server did not start: {' '.join(command)}")
        self.ready_s = time.monotonic() - began
        self.client = wire.Client(int(found[1]))

    def memory_mib(self, field="VmRSS"):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(rf"{field}:\s+(\d+)", status.read())[1]) / 1024

    def processor_s(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def info(self, name):
        return int(re.search(rf"^{name}:(\d+)", self.client.call("INFO", "all")[1].decode(), re.MULTILINE)[1])

    def many(self, commands):
        """Sends commands in batches and returns the number of replies that are not the expected ones."""
        wrong = 0
        while batch := [pair for _, pair in zip(range(BATCH), commands)]:
            self.client.send(*(command for command, _ in batch))
            wrong += sum(self.client.reply()[1] != expected for _, expected in batch)
        return wrong

    def put(self, keys, value):
        if self.many(((b"SET", b"%016d" % key, value(key)), b"OK") for key in keys):
            sys.exit("a SET failed")

    def make_durable(self):
        """Waits until all acknowledged writes are on the drive."""
        if self.client.call("WAITAOF", 1, 0, 0) != ("*", [(":", 1), (":", 0)]):
            sys.exit("WAITAOF failed")

    def kill(self):
        self.process.kill()
        self.process.wait()


def written_bytes(device):
    with open(f"/sys/block/{os.path.basename(device)}/stat") as stat:
        return int(stat.read().split()[6]) * 512


def memory(esker, drives):
    """Resident memory and the time of a start, without keys."""
    for drive_bytes in (16 << 30, 15_360 * TB // 1000, 61_440 * TB // 1000, 122_880 * TB // 1000, 245_760 * TB // 1000, 1 << 50):
        device = drives.new(drive_bytes)
        server = Server(esker, device)
        print(f"{drive_bytes / TB:9.2f} TB: {server.memory_mib():.1f} MiB resident, ready in {server.ready_s:.2f} s")
        server.kill()
        drives.drop(device)


def record(esker, drives):
    """Bytes that a value takes on the drive: all bytes written while values are loaded, summaries included."""
    for drive_bytes, value_bytes, keys in ((122_880 * TB // 1000, 4096, 200_000), (61_440 * TB // 1000, 100, 2_000_000)):
        device = drives.new(drive_bytes)
        server = Server(esker, device)
        noise = os.urandom(1 << 20)
        start = lambda key: random.Random(key).randrange(len(noise) - value_bytes)
        server.put(range(keys), lambda key: noise[start(key) :][:value_bytes])
        before = written_bytes(device)
        server.put(range(keys, 2 * keys), lambda key: noise[start(key) :][:value_bytes])
        each = (written_bytes(device) - before) / keys
        print(f"{drive_bytes / TB:9.2f} TB: a value of {value_bytes} bytes takes {each:.1f}")
        server.kill()
        drives.drop(device)


def collector(esker, drives):
    """Processor time of a load of overwrites that is collected, on a small and a large drive."""
    times = {}
    for _ in range(3):
        for drive_bytes in (16 << 30, 122_880 * TB // 1000):
            device = drives.new(drive_bytes)
            server = Server(esker, device, "--segment-size", "16m", "--max-garbage", "25")
            draw = random.Random(1)
            value = os.urandom(8000)
            server.put((draw.randrange(60_000) for _ in range(180_000)), lambda _: value)
            time.sleep(3)
            freed = server.info("segments_freed")
            times.setdefault(drive_bytes, []).append(server.processor_s() / freed)
            print(f"{drive_bytes / TB:9.2f} TB: {server.processor_s():.2f} s, {freed} segments freed")
            server.kill()
            drives.drop(device)
    small, large = (sorted(each)[1] for each in times.values())
    print(f"processor time of everything per freed segment, large beside small drive: {large / small:.2f}")


def wipe(esker, drives):
    """Records that are there after the first MiB of the drive was overwritten and repaired."""
    device = drives.new(61_440 * TB // 1000)
    server = Server(esker, device)
    server.put(range(KEYS), lambda key: b"value %d" % key)
    server.make_durable()
    server.kill()
    with open(device, "r+b") as drive:
        drive.write(os.urandom(1 << 20))
        drive.flush()
        os.fsync(drive.fileno())
    run(esker, "repair", device, "--superblocks", "--confirm")
    server = Server(esker, device)
    wrong = server.many(((b"GET", b"%016d" % key), b"value %d" % key) for key in range(KEYS))
    print(f"{device}: {KEYS - wrong} of {KEYS} records are there")
    server.kill()
    drives.drop(device)


def opening(esker, drives):
    """Opening after a kill where every slot was used once: the superblock of a new store is made to say so."""
    for drive_bytes, store_memory in ((122_880 * TB // 1000, "1g"), (122_880 * TB // 1000, "16g")):
        device = drives.new(drive_bytes)
        server = Server(esker, device, memory=store_memory)
        server.put(range(KEYS), lambda key: b"%065d" % key)
        server.make_durable()
        server.kill()
        slots = use_all_slots(device, drive_bytes)
        for _ in range(3):
            subprocess.call("sync; echo 3 > /proc/sys/vm/drop_caches", shell=True)
            server = Server(esker, device, memory=store_memory)
            assert server.client.call("DBSIZE")[1] == KEYS
            print(
                f"{drive_bytes / TB:9.2f} TB, memory {store_memory}, {slots} slots: ready in {server.ready_s:.2f} s, "
                f"{server.processor_s():.2f} s of processor, at most {server.memory_mib('VmHWM'):.0f} MiB resident"
            )
            server.kill()
        drives.drop(device)


def find_segments(esker, drives):
    """Time of the search for segments after all superblocks of 61.44 TB were lost."""
    device = drives.new(61_440 * TB // 1000)
    server = Server(esker, device, memory="1g")
    server.put(range(KEYS), lambda key: b"%065d" % key)
    server.make_durable()
    server.kill()
    with open(device, "r+b") as drive:
        first = drive.read(4096)
        for offset in copy_offsets(first):
            drive.seek(offset)
            drive.write(bytes(len(first)))
        drive.flush()
        os.fsync(drive.fileno())
    for _ in range(2):
        began = time.monotonic()
        found = run(esker, "repair", device, "--find-segments").splitlines()[0]
        print(f"{time.monotonic() - began:.1f} s: {found}")
    drives.drop(device)


CRC32C = [0] * 256
for byte in range(256):
    crc = byte
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    CRC32C[byte] = crc


def crc32c(text):
    crc = 0xFFFFFFFF
    for byte in text:
        crc = CRC32C[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def number(copy, offset, length=8):
    return int.from_bytes(copy[offset : offset + length], "little")


def copy_offsets(first):
    """Returns the offsets of all copies of a superblock, of which `first` is the first one (docs/format.md)."""
    payload_end, unit_bytes = 24 + number(first, 20, 4), number(first, 24 + 74 + 8)
    # The offsets of two far copies come before the empty lists of stripes and moved slots.
    far = [number(first, payload_end - 32), number(first, payload_end - 24)]
    return [copy * max(4096, unit_bytes) for copy in range(4)] + far


def use_all_slots(device, drive_bytes):
    """Sets `used_slots` (docs/format.md) in all copies of the superblock to the number of slots, and returns it."""

    with open(device, "r+b") as drive:
        first = drive.read(4096)
        payload_end = 24 + number(first, 20, 4)
        segment_bytes, _, data_offset = (number(first, 24 + 74 + 8 * field) for field in range(3))
        offsets = copy_offsets(first)
        slots = (min(max(offsets), drive_bytes) - data_offset) // segment_bytes
        for offset in offsets:
            drive.seek(offset)
            copy = bytearray(drive.read(4096))
            copy[24 + 98 : 24 + 102] = slots.to_bytes(4, "little")
            copy[8:12] = crc32c(bytes(20) + copy[12:payload_end]).to_bytes(4, "little")
            drive.seek(offset)
            drive.write(copy)
        drive.flush()
        os.fsync(drive.fileno())
    return slots


PARTS = {part.__name__: part for part in (memory, record, collector, wipe, opening, find_segments)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--esker", required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    arguments = parser.parse_args()
    # So that drives are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    drives = Drives(os.path.abspath(arguments.directory))
    for name in arguments.only:
        print(f"{name}: {PARTS[name].__doc__}", flush=True)
        PARTS[name](os.path.abspath(arguments.esker), drives)


if __name__ == "__main__":
    main()
