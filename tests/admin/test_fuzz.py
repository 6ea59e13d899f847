"""Whatever is thrown at the socket, the daemon lives and other clients get their answers."""

from __future__ import annotations

import contextlib
import random
import socket

import grpc
import pytest

from koordlet.admin.client import Client
from koordlet.admin.pb import admin_pb2 as pb
from koordlet.admin.pb import admin_pb2_grpc as pb_grpc
from koordlet.admin.service import MAX_REQUEST_BYTES
from tests.admin.harness import Served

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def _throw(path: str, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
        sock.settimeout(5)
        sock.connect(path)
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass


def _frame(rng: random.Random) -> bytes:
    """An HTTP/2 frame with a random type, flags, stream and a length that may lie."""
    payload = rng.randbytes(rng.randrange(64))
    length = len(payload) if rng.random() < 0.7 else rng.randrange(2**24)
    head = length.to_bytes(3, "big") + bytes((rng.randrange(12), rng.randrange(256)))
    return head + rng.randrange(2**31).to_bytes(4, "big") + payload


def test_random_bytes_and_broken_frames(served: Served) -> None:
    rng = random.Random(2)
    with Client(served.path) as other:
        for round_ in range(60):
            junk = rng.randbytes(rng.randrange(2000))
            frames = PREFACE + SETTINGS + b"".join(_frame(rng) for _ in range(rng.randrange(8)))
            _throw(
                served.path, (junk, PREFACE + junk, frames, frames[: len(frames) // 2])[round_ % 4]
            )
            if round_ % 10 == 9:
                assert other.status().pid == 4321
    with Client(served.path) as fresh:
        assert fresh.status().pid == 4321
    assert served.daemon.reloaded == 0
    assert served.daemon.restored == []


def test_odd_messages_are_refused_one_by_one(served: Served) -> None:
    rng = random.Random(3)
    with grpc.insecure_channel(f"unix:{served.path}") as channel:
        stub = pb_grpc.AdminStub(channel)
        with pytest.raises(grpc.RpcError) as large:
            stub.Explain(pb.ExplainRequest(target="x" * (2 * MAX_REQUEST_BYTES)), timeout=20)
        assert large.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        raw = channel.unary_unary("/koordlet.admin.v1.Admin/Query")
        for _ in range(100):
            with contextlib.suppress(grpc.RpcError):
                raw(rng.randbytes(rng.randrange(200)), timeout=20)
        with pytest.raises(grpc.RpcError) as unknown:
            channel.unary_unary("/koordlet.admin.v1.Admin/Nothing")(b"", timeout=20)
        assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert stub.Status(pb.StatusRequest(), timeout=20).pid == 4321


def test_a_client_that_never_reads_holds_up_nobody(served: Served) -> None:
    served.daemon.pod_list = served.daemon.pod_list * 20_000
    with grpc.insecure_channel(f"unix:{served.path}") as channel:
        call = pb_grpc.AdminStub(channel).Top(pb.TopRequest(interval_s=0.2))
        with Client(served.path) as other:
            assert other.status().pid == 4321
        call.cancel()
