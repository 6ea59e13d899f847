"""Hook servers: asked at the right moment with the right facts, and unable to lose a pod."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from koordlet.decision.answer import Combined, EnvVar
from koordlet.decision.resource import Resource
from koordlet.hookserver.server import HookServer as Daemon
from koordlet.runtimeproxy.servers.config import _MAX_FILE_BYTES
from koordlet.wire.pb import cri_pb2 as cri
from koordlet.wire.pb import hook_pb2 as hook
from tests.hookserver.fakes import WHY, FakeAsk, wanted
from tests.runtimeproxy.hook_rig import World, echo_hook, world, write_config
from tests.runtimeproxy.rig import in_loop, serve, until


async def batch(stage: str, request: Any) -> Any:
    answer = await echo_hook(stage, request)
    if stage == "PreRunPodSandbox":
        answer.annotations["from-hook"] = "1"
    elif stage in ("PreCreateContainer", "PreUpdateContainerResources"):
        answer.container_resources.cpu_shares = 2
        if stage == "PreCreateContainer":
            answer.container_envs["GPU"] = "0"
    return answer


@in_loop
async def test_the_life_of_a_pod(tmp_path: Path) -> None:
    async with world(tmp_path, batch) as place:
        pod = await place.run_pod(app="web")
        assert place.last("RunPodSandbox").config.annotations["from-hook"] == "1"
        container = await place.create(pod)
        sent = place.last("CreateContainer").config
        assert sent.linux.resources.cpu_shares == 2
        assert sent.linux.resources.cpu_quota == 50_000
        assert [(env.key, env.value) for env in sent.envs] == [("A", b"1"), ("GPU", b"0")]
        await place.call("StartContainer", container_id=container)
        await place.call("UpdateContainerResources", container_id=container, linux={"cpu_quota": 9})
        assert place.last("UpdateContainerResources").linux.cpu_shares == 2
        for _ in range(2):  # kubelet stops again and again; the hooks hear of it once
            await place.call("StopContainer", container_id=container)
            await place.call("StopPodSandbox", pod_sandbox_id=pod)
            await until(lambda: "PostStopPodSandbox" in place.hooks.stages())
        await place.call("RemoveContainer", container_id=container)
        await place.call("RemovePodSandbox", pod_sandbox_id=pod)
        await until(lambda: not place.proxy.store.pods and not place.proxy.store.containers)
        assert sorted(place.hooks.stages()) == sorted(
            [
                *("PreRunPodSandbox", "PreCreateContainer", "PreStartContainer"),
                *("PostStartContainer", "PreUpdateContainerResources"),
                *("PostStopContainer", "PostStopPodSandbox"),
            ]
        )
        asked = dict(place.hooks.asked)
        create, start = asked["PreCreateContainer"], asked["PreStartContainer"]
        assert create.pod_meta.uid == "uid-1"
        assert create.pod_annotations["from-hook"] == "1"
        assert create.pod_labels["app"] == "web"
        assert create.pod_cgroup_parent == "/kubepods/poduid-1"
        assert create.pod_resources.cpu_shares == 1024
        assert create.container_meta.id == "" and start.container_meta.id == container
        assert start.container_envs["GPU"] == "0"
        # The hook sees what kubelet asked for, not what the hook itself made of it.
        update = asked["PreUpdateContainerResources"].container_resources
        assert (update.cpu_shares, update.cpu_quota) == (512, 9)
        assert place.counted("CreateContainer") == {"changed": 1}


@in_loop
async def test_koordlet_hears_of_a_pod_that_is_resized_before_kubelet_writes(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as place:
        pod = await place.run_pod()
        resources = {"cpu_quota": 45_000, "cpu_period": 100_000}
        await place.call("UpdatePodSandboxResources", pod_sandbox_id=pod, resources=resources)
        (asked,) = [a for stage, a in place.hooks.asked if "UpdatePod" in stage]
        assert (asked.pod_meta.uid, asked.resources.cpu_quota) == ("uid-1", 45_000)
        assert place.last("UpdatePodSandboxResources").resources.cpu_quota == 45_000


@in_loop
async def test_an_echo_leaves_the_bytes_alone(tmp_path: Path) -> None:
    async with world(tmp_path) as place:
        request = cri.RunPodSandboxRequest(runtime_handler="x")
        request.config.annotations.update({"z": "1", "a": "2", "m": "3"})
        body = request.SerializeToString() + b"\xca\x3e\x03abc"  # and a field nobody knows
        await place.client.unary_unary("/runtime.v1.RuntimeService/RunPodSandbox")(body)
        assert place.runtime.of("RunPodSandbox")[-1].requests == [body]
        assert place.hooks.stages() == ["PreRunPodSandbox"]
        assert place.counted("RunPodSandbox") == {"unchanged": 1}


@in_loop
async def test_pods_with_the_skip_label_pass(tmp_path: Path) -> None:
    async with world(tmp_path, batch) as place:
        label = {"runtimeproxy.koordinator.sh/skip-hookserver": "true"}
        container = await place.create(await place.run_pod(**label))
        await place.call("StartContainer", container_id=container)
        await place.call("StopContainer", container_id=container)
        assert place.hooks.asked == []
        assert container in place.proxy.store.containers


@in_loop
async def test_what_the_runtime_refused_is_not_kept_and_not_told(tmp_path: Path) -> None:
    async with world(tmp_path) as place:
        pod = await place.run_pod()
        place.pods.fail = {"CreateContainer", "StopPodSandbox"}
        with pytest.raises(grpc.aio.AioRpcError):
            await place.create(pod)
        with pytest.raises(grpc.aio.AioRpcError):
            await place.call("StopPodSandbox", pod_sandbox_id=pod)
        assert place.proxy.store.containers == {}
        place.pods.fail = set()
        await place.call("StopPodSandbox", pod_sandbox_id=pod)
        await until(lambda: place.hooks.stages().count("PostStopPodSandbox") == 1)


@in_loop
async def test_an_unknown_container_is_asked_of_the_runtime_or_passes(tmp_path: Path) -> None:
    async with world(tmp_path, batch) as place:
        container = await place.create(await place.run_pod(app="web"))
        place.proxy.store.pods.clear()
        place.proxy.store.containers.clear()
        await place.call("UpdateContainerResources", container_id=container, linux={"cpu_quota": 9})
        _, asked = place.hooks.asked[-1]
        assert asked.pod_labels["app"] == "web"
        assert asked.pod_cgroup_parent == "/kubepods/poduid-1"
        assert asked.pod_resources.cpu_shares == 1024
        told = len(place.hooks.asked)
        await place.call(
            "UpdateContainerResources", container_id="nobody's", linux={"cpu_quota": 9}
        )
        assert place.last("UpdateContainerResources").linux.cpu_shares == 0
        assert await place.create("no such pod")
        assert len(place.hooks.asked) == told


@in_loop
async def test_the_store_is_rebuilt_when_the_runtime_is_back(tmp_path: Path) -> None:
    async with world(tmp_path) as place:
        container = await place.create(await place.run_pod(app="web"))
        store = place.proxy.store
        pod = store.containers[container].pod_id
        store.containers.clear()
        kept = store.pods[pod]
        store.pods["gone"] = kept
        place.proxy.backend.lost()
        await until(lambda: container in store.containers)
        assert set(store.pods) == {pod} and store.pods[pod] is kept
        facts = store.containers[container].facts
        assert facts.container_meta.name == "main"
        assert facts.container_resources.cpu_quota == 50_000


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\xff\xff garbage",
        hook.ContainerResourceHookResponse(container_envs={"A=": "1"}),
        hook.ContainerResourceHookResponse(container_annotations={"huge": "x" * (5 << 20)}),
        hook.ContainerResourceHookResponse(container_resources={"cpuset_cpus": "all of them"}),
        b"\x0a\x06\x0a\x01\xff\x12\x01\xfe",  # a map of text that is no UTF-8
    ],
    ids=["garbage", "env", "huge", "cpuset", "utf8"],
)
@in_loop
async def test_a_hostile_answer(tmp_path: Path, answer: Any) -> None:
    async def think(stage: str, request: Any) -> Any:
        return answer if stage == "PreCreateContainer" else await echo_hook(stage, request)

    async with world(tmp_path, think) as place:
        pod = await place.run_pod()
        assert await place.create(pod)
        sent = place.last("CreateContainer").config
        assert [(env.key, env.value) for env in sent.envs] == [("A", b"1")]
        assert place.counted("CreateContainer") == {"failed": 1}
        for client in place.proxy.hooks.clients.values():
            client.breaker.succeeded()
        await place.configure("Fail")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await place.create(pod)
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert (caught.value.details() or "").startswith("hook server err: ")
        assert place.counted("CreateContainer") == {"failed": 1, "refused": 1}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\x0a\x05\x0a\x03\x0a\x01\xff", "is no RunPodSandboxRequest"),  # a name that is no UTF-8
        (bytes(cri.RunPodSandboxRequest(runtime_handler="x" * (5 << 20)).SerializeToString()), ""),
    ],
    ids=["utf8", "large"],
)
@in_loop
async def test_what_hooks_cannot_see_goes_by_the_policy(
    tmp_path: Path, body: bytes, why: str
) -> None:
    """A runtime may be less strict than the proxy, and run what the proxy cannot read."""

    async def anything(seen: Any, context: Any) -> list[bytes]:
        return [b""]

    async with world(tmp_path, batch) as place:
        place.runtime.answer = anything
        call = place.client.unary_unary("/runtime.v1.RuntimeService/RunPodSandbox")
        await call(body)
        assert place.runtime.of("RunPodSandbox")[-1].requests == [body]
        assert place.counted("RunPodSandbox") == {"failed": 1}
        await place.configure("Fail")
        with pytest.raises(grpc.aio.AioRpcError, match=f"hook server err: .*{why}"):
            await call(body)
        assert place.counted("RunPodSandbox") == {"failed": 1, "refused": 1}
        assert place.hooks.asked == [] and place.proxy.hooks.seen_bytes == 0


@in_loop
async def test_a_defect_of_ours_goes_by_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("a defect")

    async with world(tmp_path, batch) as place:
        monkeypatch.setattr("koordlet.runtimeproxy.intercept.Interception._merged", broken)
        await place.run_pod()
        assert place.counted("RunPodSandbox") == {"failed": 1}
        await place.configure("Fail")
        with pytest.raises(grpc.aio.AioRpcError, match="RuntimeError: a defect"):
            await place.run_pod()


@in_loop
async def test_what_hooks_look_at_at_a_time_is_bounded(tmp_path: Path) -> None:
    """Decoded, a request takes many times its bytes."""
    gate = asyncio.Event()

    async def wait(stage: str, request: Any) -> Any:
        await gate.wait()
        return await echo_hook(stage, request)

    async with world(tmp_path, wait) as place:
        place.proxy.hooks.budget_s = 20
        request = cri.RunPodSandboxRequest(config={"annotations": {"a": "x" * (1 << 20)}})
        calls = [asyncio.ensure_future(place.send("RunPodSandbox", request)) for _ in range(12)]
        await until(lambda: any("failed" in m.hooks for m in place.proxy.stats.methods.values()))
        assert place.proxy.hooks.seen_bytes <= 8 << 20
        gate.set()
        await asyncio.gather(*calls)
        await until(lambda: place.proxy.hooks.seen_bytes == 0)


@in_loop
async def test_a_hook_that_hangs_costs_its_budget_once(tmp_path: Path) -> None:
    async def hang(stage: str, request: Any) -> Any:
        await asyncio.sleep(3600)

    async with world(tmp_path, hang) as place:
        for _ in range(5):
            await place.run_pod()
        assert len(place.hooks.asked) == 1
        assert place.counted("RunPodSandbox") == {"failed": 5}
        breaker = next(iter(place.proxy.hooks.clients.values())).breaker
        assert "DEADLINE_EXCEEDED" in breaker.error
        await place.configure("Fail")
        with pytest.raises(grpc.aio.AioRpcError, match="not asked for another"):
            await place.run_pod()
        assert len(place.hooks.asked) == 1
        place.hooks.think = batch
        breaker.until_s = 0  # the back-off is over: this call is the probe
        pod = await place.run_pod()
        assert place.last("RunPodSandbox").config.annotations["from-hook"] == "1"
        assert breaker.error == ""
        assert place.proxy.store.pods[pod].facts.annotations["from-hook"] == "1"


@in_loop
async def test_a_hook_server_that_says_no_is_still_asked(tmp_path: Path) -> None:
    async def fail(stage: str, request: Any) -> Any:
        raise ValueError("not this one")

    async with world(tmp_path, fail) as place:
        await place.run_pod()
        await place.run_pod()
        assert len(place.hooks.asked) == 2
        assert place.counted("RunPodSandbox") == {"failed": 2}


@in_loop
async def test_a_socket_that_answers_nothing_and_one_that_closes(tmp_path: Path) -> None:
    held = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with world(tmp_path) as place:
        for number, behave in enumerate((silent, rude)):
            path = str(tmp_path / f"bad{number}.sock")
            server = await asyncio.start_unix_server(behave, path)
            write_config(tmp_path, path, "Ignore")
            place.proxy.hooks.reload()
            await place.run_pod()
            await place.run_pod()
            server.close()
        assert place.counted("RunPodSandbox") == {"failed": 4}
        assert place.hooks.asked == []
        for writer in held:
            writer.close()


@in_loop
async def test_the_hook_server_is_away_and_comes_back(tmp_path: Path) -> None:
    async with world(tmp_path, batch) as place:
        write_config(tmp_path, other := str(tmp_path / "later.sock"), "Ignore")
        place.proxy.hooks.reload()
        with capture_logs() as logs:
            client = place.proxy.hooks.client(other)
            for _ in range(3):
                await place.run_pod()
            assert place.counted("RunPodSandbox") == {"failed": 3}
            server = await serve(place.hooks, other)
            await asyncio.sleep(max(client.breaker.until_s - asyncio.get_running_loop().time(), 0))
            for _ in range(2):
                await place.run_pod()
        assert place.counted("RunPodSandbox") == {"failed": 3, "changed": 2}
        said = [
            {k: log.get(k) for k in ("event", "socket", "calls_without_it")}
            for log in logs
            if log["event"].startswith("hook_server")
        ]
        assert said == [
            {"event": "hook_server_away", "socket": other, "calls_without_it": None},
            {"event": "hook_server_back", "socket": other, "calls_without_it": 3},
        ]
        await server.stop(None)


@in_loop
async def test_koordlet_itself_is_asked_on_its_own_line(tmp_path: Path) -> None:
    ask = FakeAsk()
    ask.answer = Combined(settings=wanted({Resource.CPU_SHARES: 2}), env=(EnvVar("GPU", "0", WHY),))
    async with world(tmp_path) as place:
        daemon = Daemon(ask, path := str(tmp_path / "koordlet.sock"))
        await daemon.start()
        write_config(tmp_path, path, "Fail")
        place.proxy.hooks.reload()
        container = await place.create(await place.run_pod(app="web"))
        sent = place.last("CreateContainer").config
        assert (sent.linux.resources.cpu_shares, sent.linux.resources.cpu_quota) == (2, 50_000)
        assert [(env.key, env.value) for env in sent.envs] == [("A", b"1"), ("GPU", b"0")]
        assert sent.annotations["container"] == "yes"
        await place.call("UpdateContainerResources", container_id=container, linux={"cpu_quota": 9})
        update = place.last("UpdateContainerResources").linux
        assert (update.cpu_shares, update.cpu_quota) == (2, 9)
        await place.call("StopContainer", container_id=container)
        await until(lambda: len(daemon.status().stages) == 4)
        assert {str(each.stage) for each in daemon.status().stages} == {
            *("PreRunPodSandbox", "PreCreateContainer", "PreUpdateContainerResources"),
            "PostStopContainer",
        }
        assert place.hooks.asked == []
        await daemon.stop()
        with pytest.raises(grpc.aio.AioRpcError, match="hook server err"):
            await place.run_pod()


@in_loop
async def test_files_come_change_break_and_go(tmp_path: Path) -> None:
    async with world(tmp_path, batch) as place:
        directory, hooks = tmp_path / "hooks.d", place.proxy.hooks
        await place.run_pod()
        assert place.counted("RunPodSandbox") == {"changed": 1}

        (directory / "koordlet.json").write_text('{"remote-endpoint": 5}')
        hooks.reload()
        view = place.proxy.view()
        assert "remote-endpoint" in view.files[0].error
        assert "last good content" in view.files[0].error
        await place.run_pod()  # by the last good one
        assert place.counted("RunPodSandbox") == {"changed": 2}
        (directory / "koordlet.json").write_text(" " * (_MAX_FILE_BYTES + 1))
        hooks.reload()
        assert f"above {_MAX_FILE_BYTES} bytes" in place.proxy.view().files[0].error

        (directory / "a-first.json").write_text("not JSON")
        (directory / "readme.txt").write_text("no configuration")
        hooks.reload()
        assert [file.name for file in place.proxy.view().files] == ["a-first.json", "koordlet.json"]
        await place.run_pod()  # a file that never was good is no hook server
        assert place.counted("RunPodSandbox") == {"changed": 3}

        content = {"remote-endpoint": "/nowhere.sock", "runtime-hooks": ["PreRunPodSandbox"]}
        (directory / "a-first.json").write_text(json.dumps(content))
        hooks.reload()
        await place.run_pod()  # the first by name is asked, and only that one
        assert place.counted("RunPodSandbox") == {"changed": 3, "failed": 1}

        os.unlink(directory / "a-first.json")
        os.unlink(directory / "koordlet.json")
        hooks.reload()
        assert hooks.clients == {} and place.proxy.view().files == ()
        await place.run_pod()
        assert place.counted("RunPodSandbox") == {"changed": 3, "failed": 1}


async def _state(place: World) -> str:
    reader, writer = await asyncio.open_unix_connection(place.proxy.options.status_socket)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return text.partition("\r\n\r\n")[2]


@in_loop
async def test_the_metrics_page(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    async with world(tmp_path, batch) as place:
        await place.create(await place.run_pod())
        await until(lambda: os.path.exists(place.proxy.options.status_socket))
        families = {f.name: f for f in text_string_to_metric_families(await _state(place))}
        changed = families["koord_runtimeproxy_changed"].samples
        values = {sample.labels["method"].rpartition("/")[2]: sample.value for sample in changed}
        assert values["CreateContainer"] == values["RunPodSandbox"] == 1
        added = families["koord_runtimeproxy_added_seconds"]
        assert added.type == "histogram"
        counts = [s.value for s in added.samples if s.name.endswith("_count")]
        assert sum(counts) >= 2
        assert families["koord_runtimeproxy_backend_up"].samples[0].value == 1
        assert families["koord_runtimeproxy_hook_server_closed"].samples[0].value == 1
