"""The pod-resources proxy, between a client and a kubelet of the test's own."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import grpc
import pytest

from koordlet.cluster.reporting.pod_resources import PodResourcesProxy, with_devices
from koordlet.decision.snapshot import Pod
from koordlet.wire.pb import pod_resources_pb2 as pb
from koordlet.wire.pb.pod_resources_pb2_grpc import (
    PodResourcesListerServicer,
    PodResourcesListerStub,
    add_PodResourcesListerServicer_to_server,
)
from tests.cluster.reporting.rig import be_pod
from tests.kube.worlds import WITHIN_S

GPUS = {"gpu": [{"minor": 0, "id": "GPU-1"}, {"minor": 1, "id": "GPU-2"}]}
RDMA = {
    "rdma": [
        {"minor": 0, "id": "0000:1f:00.0"},
        {"minor": 1, "id": "x", "extension": {"vfs": [{"busID": "0000:1f:00.2"}]}},
    ]
}


def pod(name: str, allocated: Any) -> Pod:
    text = allocated if isinstance(allocated, str) else json.dumps(allocated)
    key = "scheduling.koordinator.sh/device-allocated"
    return be_pod(f"u-{name}", name, "ns", annotations={key: text})


def kubelet_list() -> bytes:
    response = pb.ListPodResourcesResponse()
    for name in ("a", "b"):
        each = response.pod_resources.add(name=name, namespace="ns")
        first = each.containers.add(name="first", cpu_ids=[1, 2])
        first.devices.add(resource_name="vendor.example/nic", device_ids=["n1"])
        each.containers.add(name="second")
    return response.SerializeToString() + UNHEARD


UNHEARD = b"\x9a\x06\x05hello"  # field 99, text: of a later kubelet


def devices(answer: bytes, name: str) -> list[dict[str, list[str]]]:
    response = pb.ListPodResourcesResponse.FromString(answer)
    (found,) = (each for each in response.pod_resources if each.name == name)
    return [
        {device.resource_name: list(device.device_ids) for device in container.devices}
        for container in found.containers
    ]


@pytest.mark.parametrize(
    ("allocated", "first"),
    [
        (GPUS, {"nvidia.com/gpu": ["GPU-1", "GPU-2"]}),
        (
            {**GPUS, **RDMA},
            {
                "koordinator.sh/rdma": ["0000:1f:00.0", "0000:1f:00.2"],
                "nvidia.com/gpu": ["GPU-1", "GPU-2"],
            },
        ),
        ({"fpga": [{"minor": 0, "id": "f"}]}, {}),
        ({"gpu": []}, {}),
        ("no JSON", {}),
        ("", {}),
    ],
)
def test_devices_of_the_first_container(allocated: Any, first: dict[str, list[str]]) -> None:
    answer = with_devices(kubelet_list(), (pod("a", allocated), pod("other", GPUS)))
    nic = {"vendor.example/nic": ["n1"]}
    assert devices(answer, "a") == [{**first, **nic}, {}]
    assert list(devices(answer, "a")[0]) == sorted(devices(answer, "a")[0])
    assert devices(answer, "b") == [nic, {}]
    assert UNHEARD in answer


class Kubelet(PodResourcesListerServicer):  # type: ignore[misc]
    async def List(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC
        return pb.ListPodResourcesResponse.FromString(kubelet_list())

    async def Get(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.pod_name != "a":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such pod")
        return pb.GetPodResourcesResponse(pod_resources=pb.PodResources(name="a"))

    async def GetAllocatableResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.AllocatableResourcesResponse(cpu_ids=[3])


async def listed(stub: PodResourcesListerStub) -> Any:
    """As soon as the proxy's line to kubelet has come back, by itself."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                return await stub.List(pb.ListPodResourcesRequest())
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.UNAVAILABLE
            await asyncio.sleep(0.05)


def test_over_the_socket(tmp_path: Path) -> None:
    async def run() -> None:
        upstream, directory = tmp_path / "up.sock", tmp_path / "served"
        directory.mkdir()
        stale = directory / "kubelet.sock"
        os.mknod(stale, stat.S_IFSOCK | 0o600)
        proxy = PodResourcesProxy(str(directory), str(upstream), lambda: (pod("a", GPUS),))
        await proxy.start()
        assert stat.S_IMODE(stale.stat().st_mode) == 0o600
        async with grpc.aio.insecure_channel(f"unix:{stale}") as channel:
            stub = PodResourcesListerStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as away:
                await stub.List(pb.ListPodResourcesRequest())
            assert away.value.code() is grpc.StatusCode.UNAVAILABLE
            kubelet = grpc.aio.server()
            add_PodResourcesListerServicer_to_server(Kubelet(), kubelet)
            kubelet.add_insecure_port(f"unix:{upstream}")
            await kubelet.start()
            found = await listed(stub)
            assert devices(found.SerializeToString(), "a")[0]["nvidia.com/gpu"]
            one = await stub.Get(pb.GetPodResourcesRequest(pod_name="a"))
            assert one.pod_resources.name == "a"
            with pytest.raises(grpc.aio.AioRpcError) as missing:
                await stub.Get(pb.GetPodResourcesRequest(pod_name="z"))
            assert missing.value.code() is grpc.StatusCode.NOT_FOUND
            every = await stub.GetAllocatableResources(pb.AllocatableResourcesRequest())
            assert list(every.cpu_ids) == [3]
            await kubelet.stop(None)
        assert proxy.served >= 5
        await proxy.stop()
        assert not stale.exists()

    asyncio.run(run())


def test_a_file_that_is_no_socket_stays(tmp_path: Path) -> None:
    (tmp_path / "kubelet.sock").write_text("mine")
    proxy = PodResourcesProxy(str(tmp_path), str(tmp_path / "up"), tuple)
    with pytest.raises(FileExistsError):
        asyncio.run(proxy.start())
    assert (tmp_path / "kubelet.sock").read_text() == "mine"
