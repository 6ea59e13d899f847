"""What kubelet says, and whether it is kubelet that says it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from koordlet_fakefs.files import FilesDirectory
from koordlet_fakefs.tree import add_directory

from koordlet.cluster.beside import AWAY_S, MOST_CPU_STATE_BYTES, PODS_S
from koordlet.cluster.kubelet import Kubelet, Place
from koordlet.cluster.kubelet_config import KubeletError, read_configz
from koordlet.cluster.options import Options
from koordlet.kube.credentials import Cluster
from koordlet.wire.pb import pod_resources_pb2 as pb
from koordlet.wire.pb.pod_resources_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)
from tests.cluster import fake_kubelet
from tests.cluster.conftest import Join
from tests.cluster.fake_kubelet import FakeKubelet
from tests.cluster.joined import NODE, Joined, node, pod
from tests.fakekube.broken import deep, listed
from tests.kube import certificates
from tests.kube.certificates import Pair
from tests.realkube.binaries import program, why_not

BE = {"koordinator.sh/qosClass": "BE"}
KUBELET = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://{}/none.sock
address: 127.0.0.1
port: 0
healthzPort: 0
failSwapOn: false
failCgroupV1: false
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
"""
STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "kubeReserved": {"cpu": "1"}}


def directory(tmp_path: Path, pair: Pair) -> Path:
    """kubelet's own, with the certificate that it made for itself."""
    (tmp_path / "kubelet" / "pki").mkdir(parents=True)
    made = tmp_path / "kubelet" / "pki" / "kubelet.crt"
    made.write_bytes(pair.certificate.read_bytes())
    return tmp_path / "kubelet"


@contextlib.asynccontextmanager
async def with_kubelet(
    join: Join, tmp_path: Path, pair: Pair, ca: str = "auto", more: str = ""
) -> AsyncIterator[tuple[Joined, FakeKubelet]]:
    """``pair`` is kubelet's; its Node is on the server."""
    if not (tmp_path / "kubelet").exists():
        directory(tmp_path, pair)
    text = f'kubelet_dir = "{tmp_path}/kubelet"\nkubelet_ca = "{ca}"\n{more}'
    async with (
        fake_kubelet.serving(certificates.server(pair)) as kubelet,
        join(text) as joined,
    ):
        endpoints = {"kubeletEndpoint": {"Port": kubelet.port}}
        joined.put("nodes", node(daemonEndpoints=endpoints))
        yield joined, kubelet


def static(joined: Joined) -> bool:
    return joined.world.engine.node().kubelet.static_policy


@pytest.fixture
def own(tmp_path: Path) -> Pair:
    """As kubelet makes it for itself: for the name of the node."""
    return certificates.authority(tmp_path, NODE)


def test_the_certificate_that_kubelet_made_for_itself_is_trusted(
    join: Join, tmp_path: Path, own: Pair
) -> None:
    async def main() -> None:
        async with with_kubelet(join, tmp_path, own) as (joined, kubelet):
            kubelet.config = STATIC
            await joined.sees(lambda: static(joined))
            assert joined.object("kubelet").name == "CPU manager static"
            assert joined.member.kubelet.config.reserved_milli == 1000
            assert "/pods/" not in kubelet.paths()  # the API server tells them

    asyncio.run(main())


@pytest.mark.cluster
def test_the_certificate_of_a_real_kubelet_is_trusted(join: Join, tmp_path: Path) -> None:
    """It makes it before it finds that there is no runtime, and ends."""
    if reason := why_not():
        pytest.skip(reason)
    made, config = tmp_path / "kubelet" / "pki", tmp_path / "kubelet.yaml"
    made.mkdir(parents=True)
    config.write_text(KUBELET.format(tmp_path))
    where = ("--root-dir", tmp_path / "root", "--cert-dir", made, "--hostname-override", NODE)
    done = subprocess.run(
        [program("kubelet"), "--config", config, *where],
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (made / "kubelet.crt").exists(), done.stderr[-1000:]
    pair = Pair(made / "kubelet.crt", made / "kubelet.key")

    async def main() -> None:
        async with with_kubelet(join, tmp_path, pair) as (joined, kubelet):
            kubelet.config = STATIC
            await joined.sees(lambda: static(joined))

    asyncio.run(main())


def test_so_is_one_for_its_address_that_an_authority_has_signed(join: Join, tmp_path: Path) -> None:
    by = certificates.authority(tmp_path, "authority")
    pair = certificates.signed(tmp_path, "kubelet-1", by)

    async def main() -> None:
        found = with_kubelet(join, tmp_path, pair, str(by.certificate))
        async with found as (joined, kubelet):
            kubelet.config = STATIC
            await joined.sees(lambda: static(joined))

    asyncio.run(main())


def test_another_certificate_is_refused_before_anything_is_asked(
    join: Join, tmp_path: Path, own: Pair
) -> None:
    directory(tmp_path, certificates.authority(tmp_path, "other"))

    async def main() -> None:
        async with with_kubelet(join, tmp_path, own) as (joined, kubelet):
            await joined.sees(lambda: bool(joined.object("kubelet").error))
            assert "certificate" in joined.object("kubelet").error
            assert not kubelet.seen

    asyncio.run(main())


def test_a_kubelet_that_forbids_it_is_shown_and_asked_again(
    join: Join, tmp_path: Path, own: Pair
) -> None:
    async def main() -> None:
        async with with_kubelet(join, tmp_path, own) as (joined, kubelet):
            kubelet.status, kubelet.config = 403, {"reservedSystemCPUs": "0-1"}
            await joined.sees(lambda: "403" in joined.object("kubelet").error)
            kubelet.status = 200
            await joined.sees(lambda: joined.member.kubelet.config is not None)
            assert joined.member.kubelet.config.reserved_milli == 2000
            await joined.sees(lambda: not joined.object("kubelet").error)
            assert not joined.object("kubelet").error

    asyncio.run(main())


def test_kubelet_tells_pods_while_the_api_server_is_away(
    join: Join, tmp_path: Path, own: Pair
) -> None:
    async def main() -> None:
        async with with_kubelet(join, tmp_path, own) as (joined, kubelet):
            old = joined.put("pods", pod("old", labels=BE))
            uid = old["metadata"]["uid"]
            joined.world.host.make_pod(uid=uid, qos="burstable")
            await joined.sees(lambda: joined.pod(uid) is not None and joined.pod(uid).name == "old")
            joined.kube.faults.down = True
            joined.kube.faults.cut_watches()
            new = pod("new", "11111111-2222-3333-4444-555555555555", labels=BE)
            kubelet.pods = [old, new]
            joined.world.host.make_pod(uid=new["metadata"]["uid"], qos="burstable")
            await joined.sees(lambda: joined.pod(new["metadata"]["uid"]) is not None)
            joined.world.host.advance(AWAY_S)
            await joined.sees(lambda: joined.pod(new["metadata"]["uid"]).qos == "BE")
            assert joined.pod(new["metadata"]["uid"]).origins["labels"] == "kubelet"
            assert joined.object("kubelet's pods").name == "2"
            kubelet.pods = []  # it has just started
            source, lists = joined.world.parts.listed["kubelet"], joined.member.kubelet.lists
            joined.world.host.advance(PODS_S)
            await joined.sees(lambda: joined.member.kubelet.lists > lists)
            assert len(source.pods()) == 2
            joined.kube.faults.down = False
            await joined.sees(lambda: not source.listed)
            assert joined.pod(uid).origins["labels"] == "api"

    asyncio.run(main())


def test_a_deep_pod_costs_itself_alone(tmp_path: Path) -> None:
    """Not even itself: what is too deep is left out. What is no list is an error of kubelet's."""
    place = Place("127.0.0.1", 1, ())
    bad = '{"kind":"Pod","metadata":{"name":7}}'
    items = [deep("a", "Pod", 1500), bad, deep("b", "Pod", 1)]

    async def names(body: bytes) -> list[str]:
        kubelet = Kubelet(Cluster("https://127.0.0.1", "the test"), Options(api="", node=NODE))

        async def get(_place: Place, _path: str) -> bytes:
            return body

        kubelet._get = get  # type: ignore[method-assign]
        return [each.metadata.name async for each in kubelet.pods(place)]

    assert asyncio.run(names(b"".join(listed("Pod", items)))) == ["a", "b"]
    for body in (b"{}", b"[" * 5000, b'{"kind":"PodList","items":' + b"[" * 5000, b'{"a":1}'):
        with pytest.raises(KubeletError):
            asyncio.run(names(body))
    with pytest.raises(KubeletError):
        read_configz(b'{"kubeletconfig":{"x":' + b"[" * 5000)


def test_an_error_of_kubelet_is_forgotten_when_nobody_asks_it_any_more(
    join: Join, tmp_path: Path, own: Pair
) -> None:
    """While the API server is away kubelet cannot ask it whether we may, and refuses."""

    async def main() -> None:
        async with with_kubelet(join, tmp_path, own) as (joined, kubelet):
            source = joined.world.parts.listed["kubelet"]
            await joined.sees(lambda: "/configz" in kubelet.paths())
            await joined.sees(lambda: joined.member.kubelet.config is not None)
            kubelet.status = 403
            joined.kube.faults.down = True
            joined.kube.faults.cut_watches()
            await joined.sees(lambda: "403" in source.error)
            assert "403" in joined.member.kubelet.error
            joined.kube.faults.down = False
            await joined.sees(lambda: not source.error)
            assert not joined.member.kubelet.error

    asyncio.run(main())


def test_kubelet_alone_may_tell_the_pods(join: Join, tmp_path: Path, own: Pair) -> None:
    async def main() -> None:
        found = with_kubelet(join, tmp_path, own, more='pods = "kubelet"')
        async with found as (joined, kubelet):
            one = pod("one", "11111111-2222-3333-4444-555555555555", labels=BE)
            ended = pod("two", "21111111-2222-3333-4444-555555555555", phase="Succeeded")
            kubelet.pods = [one, ended]
            await joined.sees(lambda: len(joined.world.parts.listed["kubelet"].pods()) == 1)
            assert joined.member.pods is None
            assert joined.kube.requests["GET /api/v1/pods"] == 0

    asyncio.run(main())


def test_cpus_that_the_static_policy_gave_away_come_from_its_file(
    join: Join, tmp_path: Path, own: Pair
) -> None:
    async def main() -> None:
        async with with_kubelet(join, tmp_path, own) as (joined, kubelet):
            kubelet.config = STATIC
            managed = joined.put("pods", pod("managed", labels=BE))["metadata"]["uid"]
            host, state = joined.world.host, f"{tmp_path}/kubelet/cpu_manager_state"
            add_directory(host.root, f"{tmp_path}/kubelet".lstrip("/"), FilesDirectory)
            text = (
                '{"policyName":"static","defaultCpuSet":"0","entries":'
                '{"pinned":{"main":"2-3"},"%s":{"main":"1"}},"checksum":1}'
            )
            host.replace(state, (text % managed).encode())
            taken = lambda: joined.world.engine.node().kubelet.static_cpus  # noqa: E731
            await joined.sees(lambda: taken() == frozenset({2, 3}))
            host.replace(state, b"")  # kubelet is about to write it
            await joined.sees(lambda: joined.member.kubelet._state != b"")
            assert taken() == frozenset({2, 3})
            host.replace(state, b'{"entries":{"pinned":{"main":"x"}}}')
            await joined.sees(lambda: "'x'" in joined.object("kubelet").error)
            assert taken() == frozenset({2, 3})

    asyncio.run(main())


def test_a_file_of_cpus_that_is_too_large_is_not_read(
    join: Join, tmp_path: Path, own: Pair
) -> None:
    async def main() -> None:
        async with with_kubelet(join, tmp_path, own) as (joined, kubelet):
            kubelet.config = STATIC
            add_directory(joined.world.host.root, f"{tmp_path}/kubelet".lstrip("/"), FilesDirectory)
            path = f"{tmp_path}/kubelet/cpu_manager_state"
            joined.world.host.replace(path, b" " * (MOST_CPU_STATE_BYTES + 1))
            await joined.sees(lambda: "larger than" in joined.object("kubelet").error)
            assert static(joined)

    asyncio.run(main())


class Lister(PodResourcesListerServicer):
    async def List(self, request: Any, context: Any) -> Any:  # noqa: N802 (its name on the wire)
        container = pb.ContainerResources(name="main", cpu_ids=[1, 2])
        one = pb.PodResources(name="pinned", namespace="default", containers=[container])
        return pb.ListPodResourcesResponse(pod_resources=[one])


def test_without_its_file_they_come_from_the_pod_resources_socket(
    join: Join, tmp_path: Path, own: Pair
) -> None:
    async def main() -> None:
        found = directory(tmp_path, own)
        (found / "pod-resources").mkdir()
        server = grpc.aio.server()
        add_PodResourcesListerServicer_to_server(Lister(), server)
        server.add_insecure_port(f"unix:{found}/pod-resources/kubelet.sock")
        await server.start()
        try:
            async with with_kubelet(join, tmp_path, own) as (joined, kubelet):
                kubelet.config = STATIC
                machine = joined.world.engine.node
                await joined.sees(lambda: machine().kubelet.static_cpus == frozenset({1, 2}))
        finally:
            await server.stop(None)

    asyncio.run(main())
