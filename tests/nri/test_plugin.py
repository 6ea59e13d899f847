"""The plugin against a fake runtime: sessions, events of both generations, losses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.strategy import Stage
from koordlet.nri import session
from koordlet.nri.errors import NotConnectedError, UnsafeUpdateError
from koordlet.nri.mask import DEFAULT_MASK, UPDATE_POD_SANDBOX, mask
from koordlet.nri.options import Options
from koordlet.nri.plugin import Plugin
from koordlet.nri.status import MAX_ERROR, Generation, Phase, Status
from koordlet.nri.versions import takes_updates
from koordlet.wire.pb import nri_pb2 as nri
from tests.nri.fake_runtime import CallError, FakeRuntime, run, until
from tests.nri.world import World, container, cpu, failed, sandbox, wants

BOTH = pytest.mark.parametrize("dedicated", [False, True], ids=["state-change", "dedicated"])


def quick(path: Path, **more: float) -> Options:
    return Options(
        **{"socket": str(path / "nri.sock"), "backoff_s": 0.02, **more}  # type: ignore[arg-type]
    )


@contextlib.asynccontextmanager
async def running(plugin: Plugin, *runtimes: FakeRuntime) -> AsyncIterator[None]:
    """No peer may have died of what the plugin sent."""
    task = asyncio.create_task(plugin.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert plugin.status.phase is Phase.STOPPED
        for runtime in runtimes:
            await runtime.stop()
            for peer in runtime.peers:
                assert peer.failure is None, peer.failure


@BOTH
def test_life_of_a_pod(tmp_path: Path, dedicated: bool) -> None:
    async def main() -> None:
        world = World(wants(CPU_SHARES=77, CPUSET_CPUS="0-1"))
        options = quick(tmp_path)
        runtime = FakeRuntime(options.socket, dedicated=dedicated)
        plugin = Plugin(world, world, options, held=world.holds)
        await runtime.start()
        async with running(plugin, runtime):
            peer = await runtime.admitted()
            assert peer.registered == nri.RegisterPluginRequest(
                plugin_name="koordlet_nri", plugin_idx="00"
            )
            assert plugin.status.event_mask == DEFAULT_MASK | mask(UPDATE_POD_SANDBOX)
            assert plugin.status.phase is Phase.CONNECTED
            pod, one = sandbox(), container()
            await runtime.event(peer, "RunPodSandbox", pod)
            create = nri.CreateContainerRequest(pod=pod, container=one)
            created = await peer.call("CreateContainer", create, nri.CreateContainerResponse)
            assert created.adjust.linux.resources.cpu.shares.value == 77
            assert created.adjust.linux.resources.cpu.cpus == "0-1"
            assert not created.adjust.linux.resources.cpu.HasField("quota")
            await runtime.event(peer, "StartContainer", pod, one)
            update = nri.UpdateContainerRequest(
                pod=pod, container=one, linux_resources=cpu(quota=50000, cpus="0-1")
            )
            updated = await peer.call("UpdateContainer", update, nri.UpdateContainerResponse)
            assert [each.container_id for each in updated.update] == ["container1"]
            assert updated.update[0].linux.resources.cpu.shares.value == 77
            assert updated.update[0].linux.resources.cpu.cpus == ""
            await runtime.event(peer, "StopContainer", pod, one)
            await runtime.event(peer, "RemoveContainer", None, one)
            await runtime.event(peer, "StopPodSandbox", pod)
            await runtime.event(peer, "RemovePodSandbox", pod)
            # What was not subscribed gets an empty success all the same.
            await runtime.event(peer, "PostStartContainer", pod, one)
        assert world.stages == [
            Stage.RUN_POD_SANDBOX,
            Stage.CREATE_CONTAINER,
            Stage.PRE_START_CONTAINER,
            Stage.UPDATE_CONTAINER,
            Stage.STOP_CONTAINER,
            Stage.STOP_POD_SANDBOX,
            Stage.REMOVE_POD_SANDBOX,
        ]
        assert world.pods == {}
        # 50000 is new; the rest is as kubelet had asked before.
        asked = world.asked[3][2]
        assert asked is not None
        assert asked.requested == {
            Resource.CPU_SHARES: 2,
            Resource.CPU_QUOTA_US: 50000,
            Resource.CPU_PERIOD_US: 100000,
            Resource.CPUSET_CPUS: "0-1",
        }
        status = plugin.status
        assert status.generation is (Generation.DEDICATED if dedicated else Generation.STATE_CHANGE)
        assert (status.adjusted, status.updated, status.refused) == (1, 1, 0)
        assert status.events["CreateContainer"] == 1
        assert sum(status.durations["CreateContainer"].counts) == 1

    run(main())


def test_nothing_to_change_claims_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(wants(CPU_SHARES=2, CPU_QUOTA_US=20000, MEMORY_LIMIT=-1))
        runtime = FakeRuntime(quick(tmp_path).socket)
        plugin = Plugin(world, world, quick(tmp_path), held=world.holds)
        await runtime.start()
        async with running(plugin, runtime):
            peer = await runtime.admitted()
            create = nri.CreateContainerRequest(pod=sandbox(), container=container())
            created = await peer.call("CreateContainer", create, nri.CreateContainerResponse)
            assert not created.HasField("adjust")
            update = nri.UpdateContainerRequest(
                pod=sandbox(), container=container(), linux_resources=cpu(cpus="0")
            )
            updated = await peer.call("UpdateContainer", update, nri.UpdateContainerResponse)
            assert not updated.update

    run(main())


@pytest.mark.parametrize("chunk", [0, 1, 7])
def test_synchronize_replaces_what_was_known(tmp_path: Path, chunk: int) -> None:
    async def main() -> None:
        world = World()
        pods = [sandbox(n) for n in range(1, 11)]
        containers = [container(n, of=n) for n in range(1, 11)]
        runtime = FakeRuntime(quick(tmp_path).socket, chunk=chunk, pods=pods, containers=containers)
        plugin = Plugin(world, world, quick(tmp_path), held=world.holds)
        await runtime.start()
        async with running(plugin, runtime):
            peer = await runtime.admitted()
            assert sorted(world.pods) == sorted(f"uid-{n}" for n in range(1, 11))
            assert {len(pod.containers) for pod in world.pods.values()} == {2}
            assert (plugin.status.pods, plugin.status.containers) == (10, 10)
            # The runtime restarts; one pod has gone meanwhile, one is new.
            runtime.pods = [*pods[1:], sandbox(11)]
            runtime.containers = containers[1:]
            await peer.close()
            await until(lambda: len(runtime.peers) == 2)
            assert len(world.pods) == 10, "what was known stays until it is told anew"
            await runtime.admitted(2)
            assert sorted(world.pods) == sorted(f"uid-{n}" for n in range(2, 12))
            assert world.replaced == 2
            assert plugin.status.sessions == 2

    run(main())


def test_more_objects_than_any_node_has_are_refused_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        world = World()
        runtime = FakeRuntime(quick(tmp_path).socket)
        plugin = Plugin(world, world, quick(tmp_path), held=world.holds)
        await runtime.start()
        async with running(plugin, runtime):
            peer = await runtime.admitted()
            monkeypatch.setattr(session, "MAX_OBJECTS", 7)
            part = nri.SynchronizeRequest(pods=[sandbox(n) for n in range(1, 6)], more=True)
            assert (await peer.call("Synchronize", part, nri.SynchronizeResponse)).more
            with pytest.raises(CallError, match="more than 7 pods and containers"):
                await peer.call("Synchronize", part, nri.SynchronizeResponse)
            part.more = False
            await peer.call("Synchronize", part, nri.SynchronizeResponse)
            assert len(world.pods) == 5, "the parts before it count no more"

    run(main())


def test_a_long_error_is_cut() -> None:
    status = Status("/run/nri.sock")
    status.failed("x" * 5000)
    assert len(status.last_error) == MAX_ERROR


def test_messages_larger_than_a_frame(tmp_path: Path) -> None:
    """In both directions, above the size of Go's buffer and close to the limit of ttrpc."""

    async def main() -> None:
        world = World(wants(CPUSET_CPUS=",".join(map(str, range(0, 4000, 2)))))
        big = {f"annotation-{n}": "x" * 50_000 for n in range(70)}
        runtime = FakeRuntime(quick(tmp_path).socket, pods=[sandbox(annotations=big)])
        plugin = Plugin(world, world, quick(tmp_path), held=world.holds)
        await runtime.start()
        async with running(plugin, runtime):
            peer = await runtime.admitted()
            assert world.pods["uid-1"].annotations == big
            create = nri.CreateContainerRequest(pod=sandbox(), container=container())
            answers = await asyncio.gather(
                *(
                    peer.call("CreateContainer", create, nri.CreateContainerResponse)
                    for _ in range(50)
                )
            )
            assert {len(each.adjust.linux.resources.cpu.cpus) for each in answers} == {9444}

    run(main())


@pytest.mark.parametrize("length", [5 << 20, (16 << 20) - 1000, (16 << 20) + 100, 17 << 20])
def test_a_runtime_that_tells_all_pods_in_one_message(tmp_path: Path, length: int) -> None:
    """containerd 1.7.18 to 1.7.25 do, however many they are, and give up if that is refused."""

    async def main() -> None:
        world = World()
        pods = [sandbox(annotations={"a": "x" * length})]
        runtime = FakeRuntime(quick(tmp_path).socket, pods=pods, nri_version="")
        # A second attempt would end in other words.
        options = quick(tmp_path, backoff_s=60.0)
        plugin = Plugin(world, world, options, held=world.holds)
        await runtime.start()
        async with running(plugin, runtime):
            if length < 16 << 20:
                await runtime.admitted()
                assert world.pods["uid-1"].annotations == pods[0].annotations
                return
            with pytest.raises((CallError, EOFError)):
                await runtime.admitted()
            await runtime.peers[0].close()
            await until(lambda: plugin.status.attempts_failed)
            seen = plugin.status.last_error
            assert re.search(r"\b1[67]\d{6} bytes", seen) and "1.7.26" in seen, seen

    run(main())


def test_failures_of_hooks(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(failed())
        runtime = FakeRuntime(quick(tmp_path).socket)
        plugin = Plugin(world, world, quick(tmp_path), held=world.holds)
        await runtime.start()
        async with running(plugin, runtime):
            peer = await runtime.admitted()
            create = nri.CreateContainerRequest(pod=sandbox(), container=container())
            with pytest.raises(CallError, match="gpu-env: annotation is broken"):
                await peer.call("CreateContainer", create, nri.CreateContainerResponse)
            # A fault of ours, also of a value that no field can hold, costs no pod.
            for broken in (RuntimeError("no such thing"), wants(CPU_SHARES=-5)):
                world.answer = broken
                answer = await peer.call("CreateContainer", create, nri.CreateContainerResponse)
                assert not answer.HasField("adjust")
            nobody = nri.PodSandbox(id="s")
            await runtime.event(peer, "RunPodSandbox", nobody)
        assert (plugin.status.refused, plugin.status.events["CreateContainer"]) == (1, 3)

    run(main())


def test_pushed_updates(tmp_path: Path) -> None:
    async def main() -> None:
        world = World()
        runtime = FakeRuntime(quick(tmp_path).socket, unknown=frozenset({"c3"}))
        plugin = Plugin(world, world, quick(tmp_path), held=world.holds)
        with pytest.raises(NotConnectedError):
            await plugin.update({"containerd://c1": wants(CPU_QUOTA_US=1000)})
        await runtime.start()
        async with running(plugin, runtime):
            peer = await runtime.admitted()
            wanted = {f"containerd://c{n}": wants(CPU_QUOTA_US=1000 * n) for n in range(20)}
            wanted["containerd://nothing"] = wants(OOM_SCORE_ADJ=5)
            assert await plugin.update(wanted) == ("containerd://c3",)
            got = [each for request in peer.updates for each in request.update]
            assert len(peer.updates) > 1, "in several calls: the runtime makes no pods meanwhile"
            assert {u.container_id: u.linux.resources.cpu.quota.value for u in got} == {
                f"c{n}": 1000 * n for n in range(20)
            }
            assert (plugin.status.pushed, plugin.status.push_failed) == (20, 1)

    run(main())


def test_no_update_goes_to_a_runtime_that_would_lock_up(tmp_path: Path) -> None:
    async def main() -> None:
        world = World()
        options = quick(tmp_path)
        runtime = FakeRuntime(options.socket, nri_version="")
        plugin = Plugin(world, world, options, held=world.holds)
        await runtime.start()
        async with running(plugin, runtime):
            peer = await runtime.admitted()
            assert plugin.is_connected
            assert not plugin.takes_updates
            with pytest.raises(UnsafeUpdateError, match="NRI of a version it does not tell"):
                await plugin.update({"a": wants(CPU_QUOTA_US=1000)})
            assert peer.updates == []

    run(main())


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ("", False),
        ("(devel)", False),
        ("0.0.0-unknown", False),
        ("v0.8.0", False),
        ("v0.12.0", False),
        ("v0.12.1-0.20260710101010-abcdefabcdef", False),
        ("v0.12.1", True),
        ("0.12.2", True),
        ("v0.12.2-3-gabcdef0", True),
        ("v1.0.0", True),
    ],
)
def test_which_runtimes_survive_an_update(version: str, safe: bool) -> None:
    assert takes_updates(version) == safe


@pytest.mark.parametrize("closes", [False, True])
def test_updates_that_the_runtime_does_not_answer(tmp_path: Path, closes: bool) -> None:
    async def main() -> None:
        world = World()
        options = quick(tmp_path, push_s=60.0 if closes else 0.05)
        runtime = FakeRuntime(options.socket)
        plugin = Plugin(world, world, options, held=world.holds)
        wanted = {"a": wants(CPU_QUOTA_US=1000), "b": wants(CPU_QUOTA_US=1000)}
        await runtime.start()
        async with running(plugin, runtime):
            peer = await runtime.admitted()
            runtime.hangs = True
            if not closes:
                assert await plugin.update(wanted) == ("a", "b")
                assert "UpdateContainers" in plugin.status.last_error
                return
            pushing = asyncio.gather(plugin.update(wanted), return_exceptions=True)
            await until(lambda: peer.updates)
            await peer.close()
            assert isinstance((await pushing)[0], NotConnectedError)

    run(main())


def test_waits_for_a_runtime_that_comes_later(tmp_path: Path) -> None:
    async def main() -> None:
        world = World()
        plugin = Plugin(world, world, quick(tmp_path), held=world.holds)
        runtime = FakeRuntime(quick(tmp_path).socket)
        async with running(plugin, runtime):
            await until(lambda: plugin.status.phase is Phase.NO_SOCKET)
            # A socket that a dead runtime has left behind.
            stale = socket.socket(socket.AF_UNIX)
            stale.bind(runtime.path)
            stale.close()
            await until(lambda: plugin.status.attempts_failed > 0)
            assert "refused" in plugin.status.last_error
            os.unlink(runtime.path)
            await runtime.start()
            await runtime.admitted()
            assert plugin.status.sessions == 1

    run(main())


def test_a_runtime_that_is_new_is_found_before_the_pause_is_over(tmp_path: Path) -> None:
    async def main() -> None:
        world = World()
        options = quick(tmp_path, backoff_s=3600.0, max_backoff_s=3600.0)
        plugin = Plugin(world, world, options, held=world.holds)
        runtime = FakeRuntime(options.socket, rejects="not now")
        await runtime.start()
        async with running(plugin, runtime):
            await until(lambda: plugin.status.phase is Phase.BACKING_OFF)
            assert plugin.status.last_error == "not now"
            await runtime.stop()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(options.socket)
            runtime.rejects = ""
            await runtime.start()
            await runtime.admitted(2)
            assert plugin.status.phase is Phase.CONNECTED

    run(main())


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"rejects": "plugin 00-koordlet_nri is not welcome"}, "not welcome"),
        ({"hangs": True}, "RegisterPlugin was not answered within 0.1 s"),
        ({"config": "events: [Nonsense]"}, "'Nonsense' is none of"),
        ({}, "told no pods within 0.2 s"),
    ],
)
def test_a_start_that_fails_is_tried_again(
    tmp_path: Path, how: dict[str, object], error: str
) -> None:
    async def main() -> None:
        world = World()
        options = quick(tmp_path, register_s=0.1, synchronize_s=0.2)
        plugin = Plugin(world, world, options, held=world.holds)
        runtime = FakeRuntime(options.socket, **how)  # type: ignore[arg-type]
        seen = []
        await runtime.start()
        async with running(plugin, runtime):
            for number in (1, 2):
                await until(lambda n=number: len(runtime.peers) == n)  # type: ignore[misc]
                peer = runtime.peers[-1]
                await until(lambda p=peer: p.registered)  # type: ignore[misc]
                if runtime.config:
                    with pytest.raises(CallError, match="none of"):
                        await runtime.configure(peer)
                    seen.append(plugin.status.last_error)
                    await peer.close()
                else:
                    await peer.gone()
                    await until(lambda n=number: plugin.status.attempts_failed >= n)  # type: ignore[misc]
                    seen.append(plugin.status.last_error)
            assert plugin.status.sessions == 0
        assert all(error in each for each in seen), seen

    run(main())


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">II", 1, (16 << 20) + 1),
        struct.pack(">II", 2, 4),  # a frame that never comes whole
        b"",
    ],
)
def test_garbage_ends_the_session_alone(tmp_path: Path, garbage: bytes) -> None:
    async def main() -> None:
        world = World()
        options = quick(tmp_path, register_s=0.2)
        plugin = Plugin(world, world, options, held=world.holds)

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(garbage)
            with contextlib.suppress(OSError):
                await writer.drain()
                while await reader.read(4096):
                    pass
            writer.close()

        server = await asyncio.start_unix_server(accept, options.socket)
        async with running(plugin):
            await until(lambda: plugin.status.attempts_failed >= 2)
            assert plugin.status.last_error
            server.close()
            await server.wait_closed()
            with contextlib.suppress(FileNotFoundError):  # since Python 3.13 the server did it
                os.unlink(options.socket)
            runtime = FakeRuntime(options.socket)
            await runtime.start()
            await runtime.admitted()
            assert plugin.status.phase is Phase.CONNECTED
            await runtime.stop()

    run(main())
