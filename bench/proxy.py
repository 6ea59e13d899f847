"""What the CRI proxy adds to a call: the same calls to the runtime and through the proxy, in turn.

Runtime and hook server are processes of their own (``python -m bench.proxy runtime|hooks
SOCKET``) that answer at once, so the figures are the proxy's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from bench.figures import Figure, quantile
from koordlet.demo.process import die_with_parent
from koordlet.wire.pb import cri_pb2 as cri
from koordlet.wire.pb import hook_pb2 as hook

_SERVICE = "/runtime.v1.RuntimeService/"
_CONTAINERS = 300
_READY_TIMEOUT_S = 20.0
_GOAL_MS = 0.3

Say = Callable[[str], None]


class Case(NamedTuple):
    """``goal_ms``: of the added p50."""

    title: str
    method: str
    request: bytes
    hooked: bool = False
    goal_ms: float | None = None


def run(smoke: bool, say: Say) -> list[Figure]:
    rounds = 100 if smoke else 2000
    directory = Path(tempfile.mkdtemp(prefix="koordlet-bench-"))
    try:
        with _processes(directory) as (direct, proxied):
            pod = _call(proxied, "RunPodSandbox", _pod())
            pod_id = cri.RunPodSandboxResponse.FromString(pod).pod_sandbox_id
            create = _create(pod_id)
            found: list[Figure] = []
            for case in (
                Case("Version", "Version", b"", goal_ms=_GOAL_MS),
                Case(f"{_CONTAINERS} containers", "ListContainers", b"", goal_ms=_GOAL_MS),
                Case("CreateContainer", "CreateContainer", create),
                Case("CreateContainer, hook", "CreateContainer", create, hooked=True),
            ):
                _configure(directory, hooked=case.hooked)
                found += _figures(case, direct, proxied, rounds, say)
            return found
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _figures(
    case: Case, direct: grpc.Channel, proxied: grpc.Channel, rounds: int, say: Say
) -> Iterator[Figure]:
    say(f"{case.title}: {rounds} calls each way")
    times: tuple[list[float], list[float]] = ([], [])
    calls = [
        channel.unary_unary(_SERVICE + case.method, None, None) for channel in (direct, proxied)
    ]
    for number in range(rounds + rounds // 10):
        for call, kept in zip(calls, times, strict=True):
            begun = time.perf_counter()
            call(case.request)
            if number >= rounds // 10:  # the first ones warm up
                kept.append(time.perf_counter() - begun)
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        plain, through = (quantile(kept, share) for kept in times)
        goal = case.goal_ms if share == 0.5 else None
        yield Figure(f"{case.title}: added {name}", (through - plain) * 1e3, "ms", goal)
        yield Figure(f"{case.title}: {name} to the direct call", through / plain, "x")


@contextmanager
def _processes(directory: Path) -> Iterator[tuple[grpc.Channel, grpc.Channel]]:
    """Channels to the runtime and to the proxy in front of it."""
    (directory / "hooks.d").mkdir()
    path = {name: str(directory / f"{name}.sock") for name in ("runtime", "hooks", "proxy")}
    with ExitStack() as stack:
        stack.enter_context(_process("bench.proxy", "runtime", path["runtime"]))
        stack.enter_context(_process("bench.proxy", "hooks", path["hooks"]))
        stack.enter_context(
            _process(
                "koordlet",
                "runtime-proxy",
                f"--koord-runtimeproxy-endpoint={path['proxy']}",
                f"--remote-runtime-service-endpoint={path['runtime']}",
                f"--hook-config-dir={directory}/hooks.d",
                f"--status-socket={directory}/status.sock",
            )
        )
        channels = [stack.enter_context(_channel(path[name])) for name in ("runtime", "proxy")]
        for channel in channels:
            _call(channel, "Version", b"", wait_for_ready=True, timeout=_READY_TIMEOUT_S)
        yield channels[0], channels[1]


@contextmanager
def _process(module: str, *arguments: str) -> Iterator[None]:
    parent = os.getpid()
    child = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: die_with_parent(parent),
    )
    try:
        yield
    finally:
        child.kill()
        child.wait()


def _channel(path: str) -> grpc.Channel:
    # A pool of its own: channels to different sockets shall share nothing.
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 200))
    return grpc.insecure_channel(f"unix://{path}", options)


def _call(channel: grpc.Channel, method: str, request: bytes, **options: Any) -> bytes:
    answer: bytes = channel.unary_unary(_SERVICE + method, None, None)(request, **options)
    return answer


def _configure(directory: Path, *, hooked: bool) -> None:
    file = directory / "hooks.d" / "bench.json"
    stages = ["PreCreateContainer"] if hooked else []
    content = {"remote-endpoint": str(directory / "hooks.sock"), "runtime-hooks": stages}
    file.with_suffix(".new").write_text(json.dumps(content))
    os.rename(file.with_suffix(".new"), file)
    time.sleep(1.5)  # the proxy looks once a second


def _pod() -> bytes:
    config = cri.PodSandboxConfig(labels={"app": "bench"})
    config.metadata.name, config.metadata.uid = "bench", "uid"
    config.linux.cgroup_parent = "/kubepods/poduid"
    message: bytes = cri.RunPodSandboxRequest(config=config).SerializeToString()
    return message


def _create(pod_id: str) -> bytes:
    """As large as kubelet's usual ones."""
    config = cri.ContainerConfig(annotations={f"annotation-{n}": "x" * 40 for n in range(10)})
    config.metadata.name = "main"
    for number in range(30):
        config.envs.add(key=f"SERVICE_HOST_{number}", value=b"10.0.0.1")
        config.mounts.add(container_path=f"/mnt/{number}", host_path="/var/lib/kubelet/volume")
    config.linux.resources.cpu_shares = 1024
    request = cri.CreateContainerRequest(pod_sandbox_id=pod_id, config=config)
    message: bytes = request.SerializeToString()
    return message


class _Answers(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """``answer``: of (name of the method, request)."""

    def __init__(self, answer: Callable[[str, bytes], bytes]) -> None:
        self._answer = answer

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = details.method.rpartition("/")[2]
        return grpc.unary_unary_rpc_method_handler(lambda request, _: self._answer(method, request))


def _runtime() -> Callable[[str, bytes], bytes]:
    listed = cri.ListContainersResponse()
    for number in range(_CONTAINERS):
        labels = {f"io.kubernetes.label-{n}": f"value-{number}" for n in range(4)}
        container = listed.containers.add(id=f"{number:064x}", pod_sandbox_id="f" * 64)
        container.labels.update(labels)
        container.annotations.update({f"annotation-{n}": "x" * 40 for n in range(5)})
    answers = {
        "Version": cri.VersionResponse(version="0.1.0", runtime_name="bench").SerializeToString(),
        "ListContainers": listed.SerializeToString(),
        "RunPodSandbox": cri.RunPodSandboxResponse(pod_sandbox_id="a" * 64).SerializeToString(),
        "CreateContainer": cri.CreateContainerResponse(container_id="b" * 64).SerializeToString(),
    }
    return lambda method, request: answers.get(method, b"")


def _hook(method: str, request: bytes) -> bytes:
    asked = hook.ContainerResourceHookRequest.FromString(request)
    answer = hook.ContainerResourceHookResponse(
        container_annotations=asked.container_annotations,
        container_resources=asked.container_resources,
        container_envs=asked.container_envs,
    )
    answer.container_resources.cpu_shares = 2
    message: bytes = answer.SerializeToString()
    return message


def main(arguments: Sequence[str]) -> None:
    role, path = arguments
    handler = _Answers(_runtime() if role == "runtime" else _hook)
    server = grpc.server(ThreadPoolExecutor(4), handlers=[handler])
    server.add_insecure_port(f"unix://{path}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1:])
