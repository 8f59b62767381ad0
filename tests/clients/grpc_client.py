#!/usr/bin/env python3
"""grpcio against the published proto: python3 tests/clients/grpc_client.py target/release/esker

Makes a virtual environment with grpcio, generates the stubs from proto/, starts a server with a password, calls it, and runs the
examples of docs/grpc.md.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ["grpcio", "grpcio-tools", "grpcio-health-checking", "grpcio-reflection", "grpcio-status"]


def prepare(directory):
    """Makes the environment and the stubs in `directory`. Returns the environment's Python."""
    python = directory / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", directory / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    proto = REPOSITORY / "proto"
    out = [f"--python_out={directory}", f"--grpc_python_out={directory}"]
    subprocess.run(
        [python, "-m", "grpc_tools.protoc", f"-I{proto}", *out, proto / "esker/v1/esker.proto"], check=True
    )
    return python


def serve(binary, directory):
    arguments = ["serve", "--dir", directory / "store", "--resp", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
    environment = dict(os.environ, ESKER_PASSWORD="secret")
    server = subprocess.Popen([binary, *arguments], stdout=subprocess.PIPE, text=True, env=environment)
    ready = server.stdout.readline()
    return server, re.search(r"grpc=(\S+)", ready).group(1)


def call(address):
    import grpc
    from esker.v1 import esker_pb2 as esker
    from esker.v1 import esker_pb2_grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
    from grpc_status import rpc_status
    from google.rpc import error_details_pb2

    plain = grpc.insecure_channel(address)
    health = health_pb2_grpc.HealthStub(plain).Check(health_pb2.HealthCheckRequest())
    assert health.status == health_pb2.HealthCheckResponse.SERVING

    class Login(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor,
                grpc.StreamUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
        def add(self, go_on, details, request):
            return go_on(details._replace(metadata=[("authorization", "Bearer secret")]), request)

        intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = add

    channel = grpc.intercept_channel(plain, Login())
    assert "esker.v1.Esker" in ProtoReflectionDescriptorDatabase(channel).get_services()

    def refused(code, reason, function, request):
        try:
            function(request)
        except grpc.RpcError as error:
            assert error.code() == code, error
            info = error_details_pb2.ErrorInfo()
            assert rpc_status.from_call(error).details[0].Unpack(info)
            assert (info.reason, info.domain) == (reason, "esker"), info
            return info.metadata
        raise AssertionError("it was not refused")

    code = grpc.StatusCode
    refused(code.UNAUTHENTICATED, "LOGIN", esker_pb2_grpc.EskerStub(plain).Get, esker.GetRequest(key=b"a"))
    store = esker_pb2_grpc.EskerStub(channel)
    assert not store.Get(esker.GetRequest(key=b"a")).HasField("entry")
    put = esker.PutRequest(key=b"a", value=b"1", condition=esker.Condition(absent=True))
    version = store.Put(put).version
    assert refused(code.FAILED_PRECONDITION, "CONFLICT", store.Put, put)["current_version"] == str(version)
    refused(code.INVALID_ARGUMENT, "INVALID", store.Get, esker.GetRequest())
    swap = [store.CompareAndSwap(esker.CompareAndSwapRequest(key=b"a", version=version, put=b"2")) for _ in range(2)]
    assert (swap[0].swapped, swap[1].swapped, swap[1].current.value) == (True, False, b"2")
    writes = [esker.Operation(put=esker.Operation.Put(key=b"k%d" % n, value=b"v%d" % n)) for n in range(1000)]
    store.Batch(esker.BatchRequest(operations=writes + [esker.Operation(delete=b"a")]))
    found = store.MultiGet(esker.MultiGetRequest(keys=[b"k7", b"a", b"k9"])).results
    assert [result.entry.value for result in found] == [b"v7", b"", b"v9"] and not found[1].HasField("entry")
    met = {entry.key: entry.value for page in store.Scan(esker.ScanRequest()) for entry in page.entries}
    assert met == {b"k%d" % n: b"v%d" % n for n in range(1000)}

    value = os.urandom(8 << 20)
    head = esker.UploadRequest(head=esker.UploadRequest.Head(key=b"large", value_bytes=len(value)))
    chunks = (esker.UploadRequest(chunk=value[at:at + 100_000]) for at in range(0, len(value), 100_000))
    store.Upload(part for parts in ([head], chunks) for part in parts)
    parts = list(store.Download(esker.DownloadRequest(key=b"large")))
    assert parts[0].head.value_bytes == len(value) and b"".join(part.chunk for part in parts[1:]) == value
    assert store.Delete(esker.DeleteRequest(key=b"large")).existed
    assert store.Stats(esker.StatsRequest()).keys == 1000
    new_calls(esker, store, code, refused)
    examples(grpc, esker, store)
    print("all calls answered as they should")


def new_calls(esker, store, code, refused):
    """Tests conditional writes, retries, and watches."""
    watch = store.Watch(esker.WatchRequest(prefixes=[b"py:"], with_values=True))
    assert next(watch).HasField("started")

    def told():
        """Returns the next change."""
        while True:
            if waiting:
                return waiting.pop(0)
            waiting.extend(next(watch).changes.changes)

    waiting = []
    first = store.Put(esker.PutRequest(key=b"py:a", value=b"1", expiry=esker.Expiry(ttl_ms=100_000)))
    second = store.Put(esker.PutRequest(key=b"py:a", value=b"2", keep_expiry=True, return_previous=True))
    assert (second.previous.value, second.previous.version) == (b"1", first.version)
    head = store.Head(esker.HeadRequest(key=b"py:a")).entry
    assert (head.value, head.value_bytes, head.version) == (b"", 1, second.version)
    assert head.expires_at_ms == second.previous.expires_at_ms
    touched = store.Touch(esker.TouchRequest(key=b"py:a", persistent=True))
    assert touched.existed and touched.version > second.version and not touched.HasField("expires_at_ms")
    for version in (first.version, second.version, touched.version):
        change = told()
        assert (change.kind, change.key, change.version) == (esker.Change.KIND_PUT, b"py:a", version)
    assert change.value == b"2"

    request = esker.IncrementRequest(key=b"py:n", by=5, initial=10, options=esker.WriteOptions(request_id=b"one"))
    answers = [store.Increment(request) for _ in range(3)]
    assert answers[0].value == 15 and answers.count(answers[0]) == 3
    request.by = 6
    refused(code.INVALID_ARGUMENT, "REQUEST_ID", store.Increment, request)
    unknown = esker.WriteOptions(request_id=b"two", retry=True)
    refused(code.ABORTED, "FORGOTTEN", store.Increment, esker.IncrementRequest(key=b"py:n", options=unknown))
    about = refused(code.OUT_OF_RANGE, "OUT_OF_RANGE", store.Increment, esker.IncrementRequest(key=b"py:n", max=15))
    assert about["value"] == "15"
    refused(code.FAILED_PRECONDITION, "NOT_A_NUMBER", store.Increment, esker.IncrementRequest(key=b"k1"))

    operation = esker.TxnOperation
    compare = esker.Compare(key=b"py:n", version=answers[0].version - 1, relation=esker.RELATION_GREATER)
    success = [
        operation(put=operation.Put(key=b"py:b", value=b"new", return_previous=True)),
        operation(get=operation.Get(key=b"py:b")),
        operation(delete=operation.Delete(key=b"py:n")),
    ]
    failure = [operation(get=operation.Get(key=b"py:n", without_value=True))]
    txn = esker.TxnRequest(compares=[compare], success=success, failure=failure)
    done = store.Txn(txn)
    put, get, delete = done.results
    assert done.succeeded and get.get.entry.version == put.put.version and delete.delete.existed
    again = store.Txn(txn)
    assert not again.succeeded and not again.results[0].get.HasField("entry")
    assert {told().key for _ in range(3)} == {b"py:n", b"py:b"}
    deleted = store.Delete(esker.DeleteRequest(key=b"py:b", return_previous=True))
    assert deleted.existed and deleted.previous.value == b"new"
    change = told()
    assert (change.kind, change.key) == (esker.Change.KIND_DELETE, b"py:b")
    watch.cancel()
    pages = list(store.Scan(esker.ScanRequest(keys_only=True, limit=100)))
    rest = list(store.Scan(esker.ScanRequest(keys_only=True, cursor=pages[-1].next_cursor)))
    assert {entry.key for page in pages + rest for entry in page.entries} >= {b"k%d" % n for n in range(1000)}
    assert rest[-1].done and rest[-1].next_cursor == b""


def examples(grpc, esker, store):
    """Runs the examples of docs/grpc.md, except the connection. An example that waits for changes runs in its own thread."""
    text = (REPOSITORY / "docs/grpc.md").read_text()
    blocks = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "insecure_channel" not in block]
    assert len(blocks) == 4
    printed = []
    names = {"grpc": grpc, "esker": esker, "store": store, "print": lambda *words: printed.append(words)}
    store.Put(esker.PutRequest(key=b"balance", value=b"20"))
    for block in blocks[:3]:
        exec(block, names)
    assert printed == [("taken",)] and names["balance"] == 15
    threading.Thread(target=exec, args=(blocks[3], names), daemon=True).start()
    for number in range(100):
        store.Put(esker.PutRequest(key=b"config:color", value=b"%d" % number))
        if len(printed) > 1:
            break
        time.sleep(0.1)
    assert printed[1][:2] == ("KIND_PUT", b"config:color"), printed


def main():
    if sys.argv[1] == "--call":
        return call(sys.argv[2])
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        python = prepare(directory)
        server, address = serve(sys.argv[1], directory)
        try:
            environment = dict(os.environ, PYTHONPATH=str(directory))
            subprocess.run([python, __file__, "--call", address], check=True, env=environment, timeout=120)
        finally:
            server.terminate()
            assert server.wait(30) == 0


if __name__ == "__main__":
    main()
