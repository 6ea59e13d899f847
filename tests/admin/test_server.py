"""The API as a client sees it: answers, errors, life and death of the socket."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import stat
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import grpc
import msgspec
import pytest

from koordlet.admin import series
from koordlet.admin.client import Client, Fault, NotReachableError, RefusedError
from koordlet.admin.model.events import EventKind, EventView
from koordlet.admin.pb.admin_pb2 import EventsRequest
from koordlet.admin.pb.admin_pb2_grpc import AdminStub
from koordlet.admin.server import AdminServer
from koordlet.admin.service import MAX_CONCURRENT_CALLS, MAX_EXPLAIN_LIMIT
from koordlet.serving.door import MAX_CONNECTIONS, MAX_USERS
from koordlet.serving.unix_socket import SocketError
from koordlet.tsdb.store import Store
from tests.admin.fake_daemon import FakeDaemon
from tests.admin.harness import Served, serving
from tests.admin.samples import START


def test_every_call_answers_what_the_daemon_says(served: Served) -> None:
    expected = FakeDaemon()
    with Client(served.path) as client:
        assert client.status() == expected.status()
        assert client.pods() == expected.pods()()
        assert client.explain("node", 1) == expected.explain("node", 1)()
        assert (
            client.query("pod_cpu_usage", {"x": "y"}, 30.0, "p95")
            == expected.query("pod_cpu_usage", {"x": "y"}, 30.0, "p95")()
        )
        assert client.doctor() == expected.doctor()()
        assert client.config() == expected.config()
        assert client.predict("") == expected.predict("", 0.0)()
        assert client.predict("shop/web-0", 60.0) == expected.predict("shop/web-0", 60.0)()
        assert client.restore(dry_run=True) == expected.restore(dry_run=True)
        assert client.restore(dry_run=False) == expected.restore(dry_run=False)
        assert client.reload() == expected.reload()
        assert client.pause(("cpu-qos",), ("/batch",), 60.0, "night") == expected.pause(
            (), (), for_s=None, reason="", by=""
        )
        assert client.pause((), (), None, "").problem == ""
        assert client.resume(("cpu-qos",), ()) == expected.resume((), (), by="")
    assert served.daemon.restored == [True, False]
    assert served.daemon.reloaded == 1
    (part, whole), (ended,) = served.daemon.paused, served.daemon.resumed
    assert part[:4] == (("cpu-qos",), ("/batch",), 60.0, "night")
    assert whole[:4] == ((), (), None, "")
    # The daemon is told who asked, as the kernel says.
    assert all(str(each[-1]).endswith(f"(pid {os.getpid()})") for each in (part, whole, ended))


def test_series_over_time_arrive_piece_by_piece(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = served.daemon.store = Store(None)
    column = store.series("pod_cpu_usage", (("pod_uid", "a"),))
    for second in range(12):
        if second != 7:
            store.append(int(START + second) * 1000, [column], [second / 4])
    monkeypatch.setattr(series, "FRAMES_AT_ONCE", 1)
    with Client(served.path) as client:
        asked = ("pod_cpu_usage", {"pod_uid": "a"}, START, START + 12)
        pieces = list(client.query_range(*asked, 1.0, "avg"))
        assert len(pieces) > 1
        assert {(piece.start, piece.step_s, piece.steps) for piece in pieces} == {(START, 1, 12)}
        assert {(piece.oldest, piece.newest) for piece in pieces} == {(START, START + 11)}
        (found,) = (each for piece in pieces for each in piece.series)
        assert (found.labels, found.first) == ({"pod_uid": "a"}, 0)
        assert [value for value in found.values if value == value] == [
            second / 4 for second in range(12) if second != 7
        ]
        assert found.values[7] != found.values[7]
        with pytest.raises(RefusedError, match="too many") as refused:
            list(client.query_range(*asked, 0.001, "avg"))
        assert refused.value.fault is Fault.INVALID
        assert client.query("pod_cpu_usage", {}, 5.0, "count", START + 8).series[0].value == 5
    assert served.daemon.untils == [START + 8]


def test_the_number_of_decisions_asked_for_is_bounded(served: Served) -> None:
    with Client(served.path) as client:
        client.explain("node", 1_000_000)
    assert served.daemon.limits == [MAX_EXPLAIN_LIMIT]


OWN = [("grpc.use_local_subchannel_pool", 1)]
"""A connection of its own for each channel."""


def test_calls_at_a_time_are_bounded(served: Served) -> None:
    with ExitStack() as stack:
        for _ in range(2):
            channel = stack.enter_context(grpc.insecure_channel(f"unix:{served.path}", OWN))
            for _ in range(MAX_CONCURRENT_CALLS // 2):
                stream = AdminStub(channel).Events(EventsRequest(since=0.0, follow=True))
                next(stream)
                stack.callback(stream.cancel)
        with Client(served.path) as another:
            with pytest.raises(RefusedError, match="too many calls") as refused:
                another.status()
            assert refused.value.fault is Fault.BUSY
    with Client(served.path) as another:
        assert another.status().pid == 4321


def test_a_bounded_number_of_users_is_remembered(tmp_path: Path) -> None:
    door = AdminServer(FakeDaemon(), str(tmp_path / "koordlet.sock"))
    for uid in range(3 * MAX_USERS):
        door._user(uid)
    assert 0 < len(door._users) <= MAX_USERS


def test_top_streams_frames_until_the_client_hangs_up(served: Served) -> None:
    with Client(served.path) as client:
        frames = client.top(0.2)
        assert next(frames) == next(frames) == FakeDaemon().top()()
        frames.close()  # type: ignore[attr-defined]
        client.status()
    assert served.daemon.frames >= 2


def test_events_replay_then_follow(served: Served) -> None:
    live = EventView(
        sequence=3, time=START + 99, kind=EventKind.ALARM, subject="node", text="pressure"
    )
    with Client(served.path) as client:
        assert [e.sequence for e in client.events(since=0.0, follow=False)] == [1, 2]
        assert [e.sequence for e in client.events(since=START + 1, follow=False)] == [2]
        following = client.events(since=START + 1, follow=True)
        assert next(following).sequence == 2
        served.loop.call_soon_threadsafe(served.daemon.live_events.put_nowait, live)
        assert next(following) == live


def test_errors_of_the_daemon_are_typed(served: Served) -> None:
    with Client(served.path) as client:
        with pytest.raises(RefusedError, match="is no pod") as refused:
            client.explain("nothing", 0)
        assert refused.value.fault is Fault.NOT_FOUND
        with pytest.raises(RefusedError, match="did you mean") as refused:
            client.query("pod_cpu", {}, 1.0, "avg")
        assert refused.value.fault is Fault.INVALID
        served.daemon.crash = RuntimeError("a defect")
        with pytest.raises(RefusedError, match="RuntimeError: a defect") as refused:
            client.status()
        assert refused.value.fault is Fault.INTERNAL
        served.daemon.crash = None
        assert client.status().pid == 4321


def test_a_large_answer_arrives_whole(served: Served) -> None:
    pod = msgspec.structs.replace(served.daemon.pod_list[0], cgroup="kubepods/" + "x" * 4000)
    served.daemon.pod_list = (pod,) * 1500  # more than the 4 MiB that gRPC takes by default
    with Client(served.path) as client:
        assert len(client.pods()) == 1500


def test_grpc_waits_for_the_first_caller(served: Served) -> None:
    assert os.listdir(Path(served.path).parent / "private") == []
    with Client(served.path) as client:
        client.status()
    assert os.listdir(Path(served.path).parent / "private") == ["full.sock"]


def test_socket_mode_and_removal(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        found = os.stat(served.path)
        assert stat.S_ISSOCK(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == 0o660
        assert found.st_gid == os.getegid()
        assert stat.S_IMODE(os.stat(tmp_path / "private").st_mode) == 0o700
        with Client(served.path) as client:
            client.status()
    assert os.listdir(tmp_path) == ["private"]
    assert os.listdir(tmp_path / "private") == []


def test_a_dead_daemons_socket_is_replaced_a_live_one_refused(tmp_path: Path) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "koordlet.sock"))
    dead.close()
    with pytest.raises(NotReachableError, match="nobody listens"):
        Client(str(tmp_path / "koordlet.sock"))
    with serving(tmp_path) as served:
        second = AdminServer(FakeDaemon(), served.path)
        with pytest.raises(SocketError, match="another koordlet that is alive"):
            asyncio.run(second.start())
        with Client(served.path) as client:
            assert client.status().pid == 4321
    with pytest.raises(NotReachableError, match="does not exist"):
        Client(str(tmp_path / "koordlet.sock"))


def test_impossible_sockets_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, group, text in (
        (tmp_path / "file" / "koordlet.sock", "", "file"),
        (tmp_path / ("x" * 200), "", "x" * 200),
        (tmp_path / "koordlet.sock", "no-such-group-here", "groupadd"),
    ):
        with pytest.raises(SocketError, match=text):
            asyncio.run(AdminServer(FakeDaemon(), str(path), group).start())


def test_stop_does_not_wait_for_clients(tmp_path: Path) -> None:
    ended = threading.Event()

    def follow(path: str) -> None:
        with Client(path) as client, pytest.raises(NotReachableError):
            for _ in client.events(since=0.0, follow=True):
                started.set()
        ended.set()

    started = threading.Event()
    with serving(tmp_path) as served:
        thread = threading.Thread(target=follow, args=(served.path,))
        thread.start()
        assert started.wait(20)
        silent = socket.socket(socket.AF_UNIX)
        silent.connect(served.path)
    # serving() has stopped the server although one client follows and one says nothing
    silent.close()
    assert ended.wait(20)
    thread.join()


def _one_ends(held: list[socket.socket]) -> bool:
    """Which one was idle for longest depends on when the server greeted each."""
    while readable := select.select(held, [], [], 20)[0]:
        for sock in readable:
            try:
                if not sock.recv(65536):
                    return True
            except ConnectionResetError:
                return True
    return False


@pytest.mark.parametrize("count", [MAX_CONNECTIONS, 100])
def test_idle_connections_shut_nobody_out_and_are_counted(served: Served, count: int) -> None:
    held = []
    for _ in range(count):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(served.path)
        sock.settimeout(20)
        held.append(sock)
    with Client(served.path) as client:
        assert client.status().pid == 4321
    assert _one_ends(held)
    assert served.server.connections <= MAX_CONNECTIONS
    assert served.server.refused["too-many"] >= count - MAX_CONNECTIONS + 1
    for sock in held:
        sock.close()
    deadline = time.monotonic() + 20
    while served.server.connections and time.monotonic() < deadline:
        time.sleep(0.02)
    with Client(served.path) as client:
        assert client.status().pid == 4321
