"""What a webhook costs for a pod: a review read, decided and answered, without HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from bench.figures import Figure
from koord_scheduler.admission.pod_validation import LabelRule
from koord_scheduler.admission.profiles import PriorityClassValue, Profile
from koord_scheduler.admission.quotas import QuotaProfile, Quotas
from koord_scheduler.webhook.handlers import HANDLERS, Settings
from koord_scheduler.webhook.review import request_of, response
from koordlet.protocol.objects.colocation_profile import ClusterColocationProfileSpec
from koordlet.protocol.selector import LabelSelector

PROFILES = 100
_CLASSES = {"koord-batch": PriorityClassValue(5000)}


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    return asyncio.run(_run(200 if smoke else 5000, say))


async def _run(count: int, say: Callable[[str], None]) -> list[Figure]:
    body = json.dumps(_review()).encode()
    say(f"a pod of {len(body)} bytes, {PROFILES} profiles, {count} times")
    found = []
    for path, goal_ms in (("/mutate-pod", 2.0), ("/settle-pod", 2.0), ("/validate-pod", 0.5)):
        await _ask(path, body)  # types are taken apart the first time
        begun_s = time.process_time()
        for _ in range(count):
            await _ask(path, body)
        spent_ms = (time.process_time() - begun_s) * 1e3 / count
        found.append(Figure(f"{path}, CPU for a pod", spent_ms, "ms", goal_ms))
    return found


async def _ask(path: str, body: bytes) -> None:
    request = request_of(body)
    answer = (await HANDLERS[path](request, _World(), Settings())).decide()
    assert not answer.refusal, answer.refusal
    response(request.uid, answer)


def _review() -> dict[str, Any]:
    """Of a pod as a Deployment makes it."""
    resources = {"cpu": "1500m", "memory": "1Gi"}
    containers = [
        {
            "name": f"c{number}",
            "image": "registry/of/somebody:1.2.3",
            "env": [{"name": f"VARIABLE_{i}", "value": "some text" * 3} for i in range(20)],
            "resources": {"requests": resources, "limits": resources},
            "volumeMounts": [{"name": f"v{i}", "mountPath": f"/mnt/{i}"} for i in range(4)],
        }
        for number in range(2)
    ]
    meta = {
        "generateName": "web-5d9c7b-",
        "labels": {"app": "web", "pod-template-hash": "5d9c7b"},
        "annotations": {f"example/{i}": "x" * 60 for i in range(6)},
    }
    pod = {"metadata": meta, "spec": {"containers": containers}}
    return {"request": {"uid": "u", "operation": "CREATE", "namespace": "n", "object": pod}}


class _World:
    """One profile of a hundred matches."""

    _profiles = (
        *(
            Profile(
                f"p{i}",
                ClusterColocationProfileSpec(selector=LabelSelector({"app": f"other{i}"})),
            )
            for i in range(PROFILES - 1)
        ),
        Profile(
            "web",
            ClusterColocationProfileSpec(
                selector=LabelSelector({"app": "web"}),
                qos_class="BE",
                priority_class_name="koord-batch",
                labels={"a": "b"},
            ),
        ),
    )
    _quotas = Quotas()

    def profiles(self) -> tuple[Profile, ...]:
        return self._profiles

    def priority_classes(self) -> Mapping[str, PriorityClassValue]:
        return _CLASSES

    def quotas(self) -> Quotas:
        return self._quotas

    def quota_profiles(self) -> tuple[QuotaProfile, ...]:
        return ()

    def nodes(self) -> Mapping[str, Mapping[str, str]]:
        return {}

    def config(self) -> Mapping[str, str]:
        return {}

    def label_rules(self) -> tuple[LabelRule, ...]:
        return ()

    async def namespace_labels(self, name: str) -> Mapping[str, str]:
        return {}

    async def pod(self, namespace: str, name: str) -> None:
        return None

    async def has_pods(self, quota: str, namespaces: tuple[str, ...]) -> bool:
        return False
