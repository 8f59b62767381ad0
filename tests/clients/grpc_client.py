#!/usr/bin/env python3
"""grpcio against the published proto: python3 tests/clients/grpc_client.py target/release/esker

Makes a virtual environment with grpcio, generates the stubs from proto/, starts a server with a password, and calls it.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ["grpcio", "grpcio-tools", "grpcio-health-checking", "grpcio-reflection", "grpcio-status"]


def prepare(directory):
    """The environment's Python, with the generated stubs in `directory`."""
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
    print("all calls answered as they should")


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
