"""Pods and books for tests of gangs."""

from __future__ import annotations

from typing import Any

from koord_scheduler.model.cluster.pods import Pod, PodClass
from koord_scheduler.model.pod_reading import gang_of
from koord_scheduler.share.gang.declared import PREFIX

CLASS = PodClass(number=1, namespace="a")


def pod(
    name: str,
    gang: str = "g",
    cls: PodClass = CLASS,
    labels: dict[str, str] | None = None,
    said: dict[str, str] | None = None,
    **more: Any,
) -> Pod:
    """``said``: annotations of the gang, without their prefix."""
    annotations = {f"{PREFIX}name": gang} if gang else {}
    annotations |= {f"{PREFIX}{key}": text for key, text in (said or {}).items()}
    annotations |= more.pop("annotations", {})
    labels = labels or {}
    return Pod(
        key=f"a/{name}",
        uid=name,
        cls=cls,
        labels=labels,
        annotations=annotations,
        gang=gang_of("a", labels, annotations),
        **more,
    )
