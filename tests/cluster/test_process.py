"""`koordlet run` as a process that is a member of a cluster, over TLS."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.joined import definitions, kubeconfig, slo
from tests.daemon.child import Child, children, why_not
from tests.fakekube import serving
from tests.kube import certificates

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "a daemon can be tried here"),
]
_number = itertools.count(500)


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    with children(tmp_path, next(_number)) as made:
        yield made


def cluster(child: Child) -> dict[str, Any]:
    found: Any = child.ask("status")["cluster"]
    return dict(found)


def test_a_process_joins_over_tls_and_shows_it(child: Child, tmp_path: Path) -> None:
    by = certificates.authority(tmp_path, "authority")
    pair = certificates.signed(tmp_path, "server", by)

    async def main() -> None:
        async with serving(*definitions(), tls=certificates.server(pair)) as kube:
            node_slo = slo(cpuBurstStrategy={"policy": "auto"})
            node_slo["metadata"]["name"] = "test-node"
            kube.store.create(kube.resource("nodeslos"), "", node_slo)
            authority = {"certificate-authority": str(by.certificate)}
            path = kubeconfig(tmp_path, kube.url, **authority)
            child.configure(f'[cluster]\napi = "{path}"\nkubelet = false\n')
            await asyncio.to_thread(child.start)
            found = await asyncio.to_thread(cluster, child)
            while not any(each["state"] == "watched" for each in found["objects"]):
                await asyncio.sleep(0.2)
                found = await asyncio.to_thread(cluster, child)
            assert found["connected"]
            assert found["server"] == kube.url
            text = (await asyncio.to_thread(child.cli, "status", "--verbose")).stdout
            assert kube.url in text
            assert "NodeSLO" in text
            shown = (await asyncio.to_thread(child.cli, "config", "show")).stdout
            (line,) = [each for each in shown.splitlines() if "cpuBurstStrategy.policy" in each]
            assert "NodeSLO test-node" in line
            assert await asyncio.to_thread(child.stop) == 0

    asyncio.run(main())
