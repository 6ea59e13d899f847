"""A real API server that shows a certificate, as docs/concepts/admission.md has it, goes first."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import random
import re
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from koord_scheduler.webhook import door
from koord_scheduler.webhook.kinds import MUTATING
from koord_scheduler.webhook.registration import MUTATING_NAME
from koord_scheduler.webhook.turns import Peer, Turns
from koordlet.kube.kinds import PODS
from tests.attack.webhook import ASSAULTS, Manager
from tests.companion.webhook.stories import NAMESPACE, free_port, pod
from tests.companion.webhook.test_door import bundle, of_a_client
from tests.companion.webhook.test_real import admitting
from tests.kube.conftest import CRDS
from tests.realkube.control_plane import control_plane
from tests.realkube.kubectl import kubectl

pytestmark = pytest.mark.cluster
_PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "admission.md"
_PODS = 20


def test_an_api_server_with_a_certificate_goes_first_under_attack(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    port, signed = free_port(), bundle()
    (tmp_path / "ca.crt").write_bytes(signed.authorities)
    (tmp_path / "client.pem").write_bytes(of_a_client(signed))
    config = _as_documented(tmp_path, port)
    monkeypatch.setattr(door, "OPEN", 4)  # which strangers always have
    peers: Counter[bool] = Counter()
    take = Turns.take

    async def noted(turns: Turns, peer: Peer, size_bytes: int = 0) -> None:
        peers[peer.first] += 1
        await take(turns, peer, size_bytes)

    async def story(plane: Any) -> None:
        async with admitting(plane, port=port, webhook_client_ca=str(tmp_path / "ca.crt")) as made:
            told = json.loads(await made.raw(MUTATING.path("", MUTATING_NAME)))
            authority = base64.b64decode(told["webhooks"][0]["clientConfig"]["caBundle"]).decode()
            target = Manager(port, 0, ssl.create_default_context(cadata=authority))
            chance, hostile = random.Random(1), Counter[str]()
            strangers = [
                asyncio.create_task(_going_on(ASSAULTS[name](target, chance, hostile)))
                for name in ("drips", "giants")
            ]
            try:
                while len(hostile) < len(strangers):
                    await asyncio.sleep(0.05)
                monkeypatch.setattr(Turns, "take", noted)
                for number in range(_PODS):
                    body = pod(f"p{number}", {"koordinator.sh/qosClass": "LS"}, cpu="1")
                    await made.create(PODS, body, "plain")
            finally:
                for each in strangers:
                    each.cancel()
                await asyncio.gather(*strangers, return_exceptions=True)

    with control_plane(tmp_path, f"--admission-control-config-file={config}") as plane:
        kubectl(plane, "apply", "--server-side", "-f", str(CRDS))
        kubectl(plane, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        asyncio.run(story(plane))
    # Each pod is at least a review that changes it and one that judges it.
    assert peers[True] >= 2 * _PODS, peers


async def _going_on(assault: Any) -> None:
    with contextlib.suppress(ConnectionError):
        await assault


def _as_documented(work: Path, port: int) -> Path:
    """The two files of the page. It speaks of a Service; here the port is asked by address."""
    blocks = re.findall(r"```yaml\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    (admission,) = (each for each in blocks if "AdmissionConfiguration" in each)
    (users,) = (each for each in blocks if "client-certificate" in each)
    for old, new in (
        (f"koordinator-webhook-service.{NAMESPACE}.svc", f"127.0.0.1:{port}"),
        ("/etc/kubernetes/pki/webhooks.crt", str(work / "client.pem")),
        ("/etc/kubernetes/pki/webhooks.key", str(work / "client.pem")),
    ):
        assert old in users
        users = users.replace(old, new)
    (work / "webhooks.kubeconfig").write_text(users)
    path = work / "admission.yaml"
    old = "/etc/kubernetes/webhooks.kubeconfig"
    assert old in admission
    path.write_text(admission.replace(old, str(work / "webhooks.kubeconfig")))
    return path
