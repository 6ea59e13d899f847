"""Nodes and pods that nobody has: ``--nodes 100:32c256Gi``, and workloads as the pods they make."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from koord_scheduler.model.amounts import amount_of

_MOST_NODES = 20_000
_MOST_REPLICAS = 100_000
_WORKLOADS = frozenset(
    {"Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job", "CronJob"}
)
_PLACES = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_SHAPE = re.compile(r"(?P<cpu>\d+(?:\.\d+)?)c(?P<memory>\d+(?:\.\d+)?[KMGT]i?)")


class MadeUpError(Exception):
    """The text says what cannot be made, and what to write."""


def nodes(text: str, first: int = 0) -> Iterator[dict[str, Any]]:
    """Node objects of ``COUNT:SHAPE``, where SHAPE is CPUs and memory, as ``32c256Gi``, and then,
    each after a ``+``, ``RESOURCE=AMOUNT``, ``label:KEY=VALUE`` or ``zones=N`` (nodes in turn in
    zones of that many). ``first``: the number of the first one. Raises MadeUpError."""
    count, _, shape = text.partition(":")
    main, *more = shape.split("+")
    found = _SHAPE.fullmatch(main)
    if not (count.isascii() and count.isdecimal() and 0 < int(count) <= _MOST_NODES and found):
        raise MadeUpError(
            f"{text!r}: write COUNT:SHAPE with at most {_MOST_NODES} nodes, as 100:32c256Gi or "
            "100:32c256Gi+nvidia.com/gpu=8+label:pool=a+zones=3"
        )
    amounts = {"cpu": found["cpu"], "memory": found["memory"], "pods": "110"}
    labels: dict[str, str] = {}
    zones = 0
    for each in more:
        name, sign, value = each.partition("=")
        if name.startswith("label:") and sign:
            labels[name.removeprefix("label:")] = value
        elif name == "zones" and value.isascii() and value.isdecimal() and 0 < int(value) < 1000:
            zones = int(value)
        elif sign and amount_of(value, name) is not None:
            amounts[name] = value
        else:
            raise MadeUpError(f"{each!r} is no RESOURCE=AMOUNT, label:KEY=VALUE or zones=N")
    for number in range(first, first + int(count)):
        name = f"node-{number:05d}"
        place = {_PLACES[0]: f"zone-{number % zones}"} if zones else {}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, **place, **labels},
            },
            "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
        }


def expanded(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The pods that a workload makes; anything else as it is. Raises MadeUpError."""
    spec = document.get("spec")
    kind = document.get("kind")
    if kind not in _WORKLOADS or not isinstance(spec, Mapping):
        yield document
        return
    meta = document.get("metadata") or {}
    if kind == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    count = spec.get("parallelism", 1) if kind in ("Job", "CronJob") else spec.get("replicas", 1)
    template = spec.get("template")
    if not isinstance(template, Mapping) or not isinstance(template.get("spec"), Mapping):
        raise MadeUpError(f"{kind} {meta.get('name')}: it has no template of pods")
    if not isinstance(count, int) or not 0 <= count <= _MOST_REPLICAS:
        raise MadeUpError(f"{kind} {meta.get('name')}: {count!r} pods cannot be made")
    own = template.get("metadata") or {}
    name = str(meta.get("name") or "workload")
    for number in range(count):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **own,
                "name": f"{name}-{number}",
                "namespace": meta.get("namespace") or "default",
                "ownerReferences": [
                    {
                        "apiVersion": document.get("apiVersion", ""),
                        "kind": kind,
                        "name": name,
                        "uid": "",
                        "controller": True,
                    }
                ],
            },
            "spec": template["spec"],
        }
