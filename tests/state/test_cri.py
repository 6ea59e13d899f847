"""The CRI source against a runtime that restarts, hangs and lacks what others have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
import structlog
from structlog.testing import capture_logs

from koordlet.decision.given import Given
from koordlet.state import cri, cri_client
from koordlet.state.cri import ABSENT_S, AWAITED_S, CriSource
from koordlet.wire.pb import cri_pb2 as pb

from .fake_runtime import POD, UID, FakeRuntime, container, sandbox
from .world import World, make_world

UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED
Body = Callable[[World, FakeRuntime, CriSource], Awaitable[None]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cri, "FIRST_DELAY_S", 0.02)
    monkeypatch.setattr(cri, "MAX_DELAY_S", 0.05)
    monkeypatch.setattr(cri, "GATHER_S", 0.0)
    monkeypatch.setattr(cri_client, "CALL_S", 0.2)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def source_on(
    world: World, runtime: FakeRuntime, interval_s: float
) -> AsyncIterator[CriSource]:
    source = CriSource(world.host, world.layout, runtime.socket, interval_s=interval_s)
    source.start(world.changed)
    try:
        yield source
    finally:
        source.stop()
        await runtime.stop()


def run(
    tmp_path: Path,
    body: Body,
    *,
    name: str = "containerd",
    version: str = "v2.1.9",
    interval_s: float = 60.0,
    started: bool = True,
) -> None:
    async def whole() -> None:
        world = make_world()
        world.host.make_cgroup(f"{POD}/s1")
        world.host.make_cgroup(f"{POD}/c1")
        runtime = FakeRuntime(str(tmp_path / "runtime.sock"), name, version)
        if started:
            await runtime.start()
        async with source_on(world, runtime, interval_s) as source:
            await body(world, runtime, source)

    asyncio.run(whole())


def test_pods_with_labels(tmp_path: Path) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        assert not source.synced and source.pods() == ()
        await until(lambda: source.synced)
        (pod,) = source.pods()
        assert (pod.uid, pod.name, pod.namespace, pod.cgroup) == (UID, "web-0", "shop", POD)
        assert pod.labels == {"koordinator.sh/qosClass": "BE"}
        assert pod.ips == ("10.0.0.5", "fd00::5") and pod.runtime_handler == "runc"
        assert pod.as_of is not None and pod.as_of <= world.host.monotonic()
        assert [(c.id, c.cgroup, c.name, c.is_sandbox) for c in pod.containers] == [
            ("containerd://s1", f"{POD}/s1", None, True),
            ("containerd://c1", f"{POD}/c1", "main", False),
        ]
        assert source.state == "connected to containerd v2.1.9" and source.faults() == ()
        assert world.changes == ["change"]

    run(tmp_path, body)


def test_nothing_changes_while_nothing_changes(tmp_path: Path) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        await until(lambda: source.synced)
        before = source.pods()
        listed = runtime.calls["ListContainers"]
        world.host.advance(3)
        source.refresh()
        await until(lambda: runtime.calls["ListContainers"] > listed)
        source.rescan()
        await until(lambda: runtime.calls["ListContainers"] > listed + 1)
        assert source.pods() is before and len(world.changes) == 1
        assert runtime.calls["PodSandboxStatus"] == 1, "asked once for each sandbox"

    run(tmp_path, body)


def test_events_are_followed(tmp_path: Path) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        await until(lambda: source.synced and bool(runtime.streams))
        runtime.containers.append(container("c2"))
        world.host.make_cgroup(f"{POD}/c2")
        runtime.event()
        await until(lambda: len(source.pods()[0].containers) == 3)
        runtime.sandboxes.clear()
        runtime.containers.clear()
        runtime.event()
        await until(lambda: source.pods() == ())

    run(tmp_path, body)


@pytest.mark.parametrize(("name", "version"), [("containerd", "1.7.24"), ("docker", "27.1.0")])
def test_events_that_kubelet_would_miss_are_left_to_it(
    tmp_path: Path, name: str, version: str
) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        await until(lambda: source.synced)
        runtime.containers.clear()
        await until(lambda: len(source.pods()[0].containers) == 1)
        assert "GetContainerEvents" not in runtime.calls

    run(tmp_path, body, name=name, version=version, interval_s=0.02)


@pytest.mark.parametrize("code", [UNIMPLEMENTED, grpc.StatusCode.UNKNOWN])
def test_a_runtime_without_events_is_polled(tmp_path: Path, code: grpc.StatusCode) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        runtime.fail["GetContainerEvents"] = code
        await until(lambda: source.synced)
        runtime.containers.clear()
        await until(lambda: len(source.pods()[0].containers) == 1)
        assert runtime.calls["Version"] == 1 and source.error == ""

    run(tmp_path, body, interval_s=0.02)


def test_a_restart_is_survived(tmp_path: Path) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        await until(lambda: source.synced)
        before = source.pods()
        await runtime.stop()
        await until(lambda: source.error != "")
        (fault,) = source.faults()
        assert fault.subject == "source cri" and fault.path == runtime.socket
        assert source.pods() is before and source.synced
        runtime.sandboxes[0].labels["koordinator.sh/priority"] = "1"
        runtime.sandboxes[0].id = "s2"
        await runtime.start()
        await until(lambda: source.error == "")
        assert source.pods()[0].labels == {
            "koordinator.sh/qosClass": "BE",
            "koordinator.sh/priority": "1",
        }
        assert source.faults() == ()

    run(tmp_path, body)


def test_while_it_is_down_cgroups_that_go_are_noticed(tmp_path: Path) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        await until(lambda: source.synced)
        await runtime.stop()
        world.host.remove_cgroup(f"{POD}/c1")
        world.host.deliver()
        assert [c.cgroup for c in source.pods()[0].containers] == [f"{POD}/s1", None]
        world.host.remove_cgroup(POD)
        world.host.deliver()
        assert source.pods()[0].cgroup is None

    run(tmp_path, body)


def test_a_session_that_fails_while_it_is_cancelled_is_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime and koordlet that stop together: the group of tasks tells the failure alone."""

    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("the runtime has gone")

    async def session(source: CriSource) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fails())

    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        await asyncio.sleep(0.01)
        task = source._task
        assert task is not None
        source.stop()
        _, lives = await asyncio.wait([task], timeout=1)
        assert not lives

    monkeypatch.setattr(CriSource, "_session", session)
    run(tmp_path, body, started=False)


@pytest.mark.parametrize("method", ["Version", "ListPodSandbox", "PodSandboxStatus"])
def test_a_runtime_that_hangs(tmp_path: Path, method: str) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        runtime.hang.add(method)
        await until(lambda: source.error != "")
        assert f"{method}: DEADLINE_EXCEEDED" in source.error
        assert not source.synced and source.pods() == ()
        world.host.advance(AWAITED_S)
        assert source.synced, "nobody waits for it for ever"
        runtime.hang.clear()
        await until(lambda: len(source.pods()) == 1)
        assert source.error == ""

    run(tmp_path, body)


def test_a_runtime_that_speaks_another_cri(tmp_path: Path) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        runtime.fail["Version"] = UNIMPLEMENTED
        await until(lambda: source.error != "")
        assert source.error == "Version: UNIMPLEMENTED: as told"

    run(tmp_path, body)


def test_something_else_behind_the_socket(tmp_path: Path) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_unix_server(babble, runtime.socket)
        await until(lambda: "Version: UNAVAILABLE" in source.error)
        server.close()

    run(tmp_path, body, started=False)


def test_a_runtime_that_comes_later(tmp_path: Path) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        await until(lambda: source.state.startswith("no runtime"))
        assert source.error == "" and not source.synced
        world.host.advance(ABSENT_S)
        assert source.synced
        await runtime.start()
        await until(lambda: len(source.pods()) == 1)

    run(tmp_path, body, started=False)


def test_a_runtime_that_starts_anew_is_asked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after a pause that has grown meanwhile."""
    monkeypatch.setattr(cri, "FIRST_DELAY_S", 3600.0)
    monkeypatch.setattr(cri, "MAX_DELAY_S", 3600.0)

    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        await until(lambda: source.state.startswith("no runtime at"))
        await runtime.start()
        await until(lambda: source.state.startswith("connected to"))
        await runtime.stop()
        await until(lambda: bool(source.error))
        Path(runtime.socket).unlink(missing_ok=True)
        runtime.sandboxes.clear()
        runtime.containers.clear()
        await runtime.start()
        await until(lambda: source.state.startswith("connected to") and source.pods() == ())

    run(tmp_path, body, started=False, interval_s=0.05)


def test_a_sandbox_the_runtime_cannot_tell_about_is_asked_for_again(tmp_path: Path) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        runtime.fail["PodSandboxStatus"] = grpc.StatusCode.NOT_FOUND
        await until(lambda: source.synced)
        assert source.pods()[0].cgroup is None and source.pods()[0].labels is not None
        runtime.fail.clear()
        source.refresh()
        await until(lambda: source.pods()[0].cgroup == POD)

    run(tmp_path, body)


def test_many_pods(tmp_path: Path) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        runtime.sandboxes = [sandbox(f"s{n}", f"u{n}") for n in range(300)]
        runtime.containers = [container(f"c{n}", f"s{n}") for n in range(300)]
        await until(lambda: len(source.pods()) == 300)
        assert runtime.calls["PodSandboxStatus"] == 300

    run(tmp_path, body)


def test_stop_before_and_after_start_and_while_connecting(tmp_path: Path) -> None:
    async def whole() -> None:
        world = make_world()
        source = CriSource(world.host, world.layout, str(tmp_path / "none.sock"))
        source.stop()
        source.start(world.changed)
        source.stop()
        await asyncio.sleep(0)
        assert source.pods() == () and world.changes == []

    asyncio.run(whole())


def test_a_large_list(tmp_path: Path) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        read = {"koordinator.sh/eviction-priority": "7"}
        runtime.sandboxes = [sandbox(annotations={"note": "x" * (6 << 20), **read})]
        await until(lambda: source.synced)
        # What nobody here reads is not kept.
        assert source.pods()[0].annotations == read

    run(tmp_path, body)


def test_log_lines_are_few(tmp_path: Path) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        runtime.fail["ListPodSandbox"] = grpc.StatusCode.INTERNAL
        await until(lambda: runtime.calls["ListPodSandbox"] > 4)
        runtime.fail.clear()
        await until(lambda: source.synced)

    structlog.reset_defaults()  # a command that an earlier test ran may have set a level
    with capture_logs() as logs:
        run(tmp_path, body)
    lines = [entry for entry in logs if "container runtime" in entry["event"]]
    assert len(lines) == 2


def test_what_containers_were_created_with_is_asked_for_once(tmp_path: Path) -> None:
    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        runtime.specs = {"c1": {"process": {"env": ["LD_PRELOAD=x", "SECRET=y"]}}}
        await until(lambda: source.synced)
        # What the runtime had not listed when it was sought is sought again.
        assert source.look_into(["containerd://c1", "containerd://c2"])
        await until(lambda: source.pods()[0].containers[1].given is not None)
        (pod,) = source.pods()
        assert pod.containers[1].given == Given({"LD_PRELOAD": "x"}, {}, frozenset())
        assert not source.look_into(["containerd://c1"])
        assert "SECRET" not in repr(source.pods())
        runtime.containers.append(container("c2"))
        world.host.make_cgroup(f"{POD}/c2")
        assert source.look_into(["c2"])
        await until(lambda: runtime.calls["ContainerStatus"] >= 2)
        source.refresh()
        # Found by the first round that has it in its list.
        await until(lambda: not source.look_into(["c2"]))
        assert source.pods()[0].containers[2].given is None, "the runtime does not tell"
        assert runtime.calls["ContainerStatus"] <= 3
        runtime.containers.pop()
        source.refresh()
        await until(lambda: len(source.pods()[0].containers) == 2)
        assert source.look_into(["c2"]), "it is forgotten with the container"

    run(tmp_path, body)


def test_of_many_containers_some_are_looked_into_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cri, "_LOOKS_INTO", 4)

    async def body(world: World, runtime: FakeRuntime, source: CriSource) -> None:
        ids = [f"c{n}" for n in range(10)]
        runtime.containers = [container(each) for each in ids]
        runtime.specs = {key: {"process": {"env": []}} for key in ids}
        await until(lambda: source.synced)
        source.look_into(ids)
        await until(lambda: all(c.given for c in source.pods()[0].containers[1:]))
        assert runtime.calls["ContainerStatus"] == 10

    run(tmp_path, body)


def test_states_of_sandboxes_are_what_the_protocol_says() -> None:
    from koordlet.state import cri_facts

    assert (cri_facts.READY, cri_facts._EXITED, cri_facts._NODE) == (
        pb.SANDBOX_READY,
        pb.CONTAINER_EXITED,
        pb.NODE,
    )
