"""Pods for the tables."""

from __future__ import annotations

from typing import Any


def container(name: str = "main", requests: Any = None, limits: Any = None) -> dict[str, Any]:
    resources = {
        kind: dict(amounts)
        for kind, amounts in (("requests", requests), ("limits", limits))
        if amounts is not None
    }
    return {"name": name, "resources": resources}


def pod(
    *containers: dict[str, Any],
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": "p"}
    if labels is not None:
        meta["labels"] = labels
    if annotations is not None:
        meta["annotations"] = annotations
    return {"metadata": meta, "spec": {"containers": list(containers) or [container()], **spec}}
