"""What an administrator and users write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.cluster.v2.cluster import NODE, SHOP, SYSTEM
from tests.runtime.images import BUSYBOX

COLOCATED = {"koordinator.sh/enable-colocation": "true"}
CRUNCHER = {
    "requests": {"cpu": "300m", "memory": "64Mi"},
    "limits": {"cpu": "600m", "memory": "128Mi"},
}
WEB = {"requests": {"cpu": "300m", "memory": "64Mi"}, "limits": {"cpu": "600m", "memory": "128Mi"}}
HIGH_PERCENT = 80
THRESHOLD: Mapping[str, object] = {
    "enable": True,
    # As below: with less, best effort has 2 ms in each 100 ms, in which no container of it starts.
    "cpuSuppressThresholdPercent": 100,
    "cpuSuppressPolicy": "cfsQuota",
    "memoryEvictThresholdPercent": 95,
    "memoryEvictLowerPercent": 90,
}


def platform(**threshold: object) -> tuple[Any, ...]:
    """The platform's choices. ``threshold``: what differs from THRESHOLD."""
    colocation = {
        "enable": True,
        # An emulated CPU is busy with the daemons alone: what they take is not missed here.
        "cpuReclaimThresholdPercent": 200,
        "memoryReclaimThresholdPercent": 90,
        "metricReportIntervalSeconds": 10,
        "metricAggregateDurationSeconds": 30,
    }
    burst = {"policy": "cpuBurstOnly", "cpuBurstPercent": 1000}
    best_effort = {"enable": True, "throttlingPercent": HIGH_PERCENT}
    sensitive = {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 100}
    settings = {
        "colocation-config": colocation,
        "resource-threshold-config": {"clusterStrategy": {**THRESHOLD, **threshold}},
        "cpu-burst-config": {"clusterStrategy": burst},
        "resource-qos-config": {
            "clusterStrategy": {
                "beClass": {"memoryQOS": best_effort},
                "lsClass": {"memoryQOS": sensitive},
            }
        },
    }
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "slo-controller-config",
            "namespace": SYSTEM,
            "labels": {"koordinator.sh/configmap-type": "slo-controller-config"},
        },
        "data": {name: json.dumps(value) for name, value in settings.items()},
    }
    profile = {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": "batch"},
        "spec": {
            "namespaceSelector": {"matchLabels": COLOCATED},
            "selector": {"matchLabels": COLOCATED},
            "qosClass": "BE",
            "priorityClassName": "koord-batch",
        },
    }
    return config, profile


def shop() -> Any:
    metadata = {"name": SHOP, "labels": COLOCATED}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def pod(
    name: str,
    resources: Mapping[str, object],
    labels: Mapping[str, str] | None = None,
    whole: Mapping[str, object] | None = None,
    **spec: object,
) -> Any:
    """One that works while the node has /stage/NAME. ``whole``: resources of the pod as such."""
    work = (
        f"while :; do if [ -e /stage/{name} ]; then i=0; while [ $i -lt 2000 ]; do i=$((i+1)); "
        "done; else sleep 0.5; fi; done"
    )
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", work],
        "resources": resources,
        "volumeMounts": [{"name": "stage", "mountPath": "/stage", "readOnly": True}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SHOP, "labels": {"app": name, **(labels or {})}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": NODE},
            "containers": [container],
            "volumes": [{"name": "stage", "hostPath": {"path": "/stage", "type": "Directory"}}],
            **({"resources": whole} if whole else {}),
            **spec,
        },
    }


def cruncher(name: str) -> Any:
    """Best effort, by the platform's profile."""
    return pod(name, CRUNCHER, COLOCATED)


def web(name: str = "web") -> Any:
    return pod(name, WEB, {"koordinator.sh/qosClass": "LS"}, priorityClassName="koord-prod")
