"""`koordlet run` as a process reports what this machine is and does."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.joined import definitions, kubeconfig
from tests.daemon.child import Child, children, why_not
from tests.fakekube import FakeKube, serving
from tests.fakekube.answers import ApiError
from tests.kube import certificates
from tests.kube.worlds import until

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "a daemon can be tried here"),
]
_number = itertools.count(520)
NODE = "test-node"


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    with children(tmp_path, next(_number)) as made:
        yield made


def found(kube: FakeKube, plural: str) -> dict[str, Any]:
    """Empty where it is missing."""
    try:
        return kube.store.get(kube.resource(plural), ("", NODE))
    except ApiError:
        return {}


def test_this_machine_is_reported(child: Child, tmp_path: Path) -> None:
    by = certificates.authority(tmp_path, "authority")
    pair = certificates.signed(tmp_path, "server", by)

    async def main() -> None:
        async with serving(*definitions(), tls=certificates.server(pair)) as kube:
            kube.store.create(kube.resource("nodes"), "", {"metadata": {"name": NODE}})
            metric = {"metadata": {"name": NODE}, "spec": {}}
            kube.store.create(kube.resource("nodemetrics"), "", metric)
            authority = {"certificate-authority": str(by.certificate)}
            path = kubeconfig(tmp_path, kube.url, **authority)
            proxy = tmp_path / "pod-resources"
            child.configure(
                f'[cluster]\napi = "{path}"\nkubelet = false\npod_resources = "{proxy}"\n'
            )
            await asyncio.to_thread(child.start)
            await until(lambda: bool(found(kube, "nodemetrics").get("status")))
            used = found(kube, "nodemetrics")["status"]["nodeMetric"]["nodeUsage"]["resources"]
            assert set(used) == {"cpu", "memory"}
            await until(lambda: bool(found(kube, "noderesourcetopologies")))
            topology = found(kube, "noderesourcetopologies")
            annotations = topology["metadata"]["annotations"]
            detail = json.loads(annotations["node.koordinator.sh/cpu-topology"])["detail"]
            assert len(detail) >= 1 and len(topology["zones"]) >= 1
            await until(lambda: (proxy / "kubelet.sock").exists())
            text = (await asyncio.to_thread(child.cli, "status", "--verbose")).stdout
            assert "reports, the last: " in text
            assert await asyncio.to_thread(child.stop) == 0
            assert not (proxy / "kubelet.sock").exists()

    asyncio.run(main())
