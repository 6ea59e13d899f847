"""Objects and files for tests of commands about scheduling."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord_scheduler.cli.main import main

Tree = dict[str, Any]
GANG = "pod-group.scheduling.sigs.k8s.io/"


def node(name: str, cpu: str = "8", **more: Any) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": more,
        "status": {"allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "110"}},
    }


def pod(name: str, cpu: str = "1", at: str = "", labels: Tree | None = None, **spec: Any) -> Tree:
    owner = {"kind": "ReplicaSet", "name": name.rsplit("-", 1)[0], "uid": "r", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "x",
            "uid": f"uid-{name}",
            "labels": labels or {},
            "creationTimestamp": "2026-01-31T12:00:00Z",
            "ownerReferences": [owner],
        },
        "spec": {
            "schedulerName": "koord-scheduler",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            **({"nodeName": at} if at else {}),
            **spec,
        },
        "status": {"phase": "Running" if at else "Pending"},
    }


def gang(name: str, size: int, cpu: str) -> list[Tree]:
    labels = {GANG + "name": name, GANG + "min-available": str(size)}
    return [pod(f"{name}-{i}", cpu, labels=labels) for i in range(size)]


def saved(path: Path, objects: Sequence[Tree]) -> str:
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def answer(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert main([*argv, "-o", "json"]) == code
    return json.loads(capsys.readouterr().out)


def text(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(list(argv)) == code
    return capsys.readouterr().out
