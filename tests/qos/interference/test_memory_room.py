"""Which limit is short, and who fills it, for each place where a limit can be."""

from __future__ import annotations

import pytest

from koordlet.decision.metrics import (
    CONTAINER_MEMORY_USAGE,
    HOST_APPLICATION_MEMORY_USAGE,
    POD_MEMORY_USAGE,
)
from koordlet.decision.resource import Resource
from koordlet.qos.interference.memory_room import advice
from koordlet.qos.interference.windows import Who
from tests.qos.build import Kernel, Metrics, app, node, pod, snapshot

WEB = pod("web", name="web", namespace="shop", containers=("nginx", "log"))
PODS = (WEB, pod("db", name="db", namespace="shop"), pod("up", kube="Guaranteed", name="up"))
APPS = (
    app("api", "LS", "shop.slice/api.service"),
    app("cache", "BE", "shop.slice/cache.service"),
    app("all", "LS", "shop.slice"),
    app("other", "LS", "other.slice"),
    app("gone", "LS", "shop.slice/gone.service", present=False),
)
LIMIT = 100
OWN = ": raise its memory limit"
SHOP = " below the limit of shop.slice, and has none of its own: "
TREE = " below the limit of kubepods, and has none of its own: "
THERE = " has most of the memory in there: limit it, or raise that one"
ITSELF = "it has most of the memory in there itself, so raise that one"
UNKNOWN = "look for who else fills that one (`koordlet pods`), or raise it"
WHOLE = " below the limit of the pod as a whole, and its container "
NGINX, LOG = (each.cgroup for each in WEB.containers)


@pytest.mark.parametrize(
    ("who", "limited", "used", "said"),
    [
        ("api", {}, {"cache": 9}, ", and has no limit of its own: the node is short of memory"),
        ("api", {"shop.slice/api.service": LIMIT}, {"cache": 99}, OWN),
        ("api", {"shop.slice": LIMIT}, {"api": 5, "cache": 90}, f"{SHOP}application cache{THERE}"),
        ("api", {"shop.slice": LIMIT}, {"api": 90, "cache": 5}, f"{SHOP}{ITSELF}"),
        # What it is in is no sibling, nor is what is elsewhere or not there.
        ("api", {"shop.slice": LIMIT}, {"all": 95, "other": 99, "gone": 99}, f"{SHOP}{UNKNOWN}"),
        ("web", {"kubepods": LIMIT}, {"web": 5, "db": 60, "up": 20}, f"{TREE}pod shop/db{THERE}"),
        ("web", {"kubepods": LIMIT}, {"web": 70, "db": 20, "cache": 99}, f"{TREE}{ITSELF}"),
        ("web", {NGINX: LIMIT}, {}, OWN),
        (
            "web",
            {NGINX: LIMIT, LOG: LIMIT},
            {"nginx": 5, "log": 99},
            ": raise the memory limit of its container log",
        ),
        ("db", {PODS[1].cgroup: LIMIT}, {"db": 99}, OWN),
        (
            "web",
            {WEB.cgroup: LIMIT},
            {"web": 99, "nginx": 9, "log": 90},
            f"{WHOLE}log has most of that memory: give that one a limit, or raise that of the pod",
        ),
        ("web", {WEB.cgroup: LIMIT}, {"web": 99}, OWN),
        ("nobody", {"kubepods": LIMIT}, {}, ""),
    ],
)
def test_advice(who: str, limited: dict[str, int], used: dict[str, float], said: str) -> None:
    kernel, metrics = Kernel(), Metrics()
    for cgroup, limit in limited.items():
        kernel.values[cgroup, Resource.MEMORY_LIMIT] = limit
    pods = {each.uid for each in PODS}
    apps = {each.name for each in APPS}
    for name, size in used.items():
        metric = (
            POD_MEMORY_USAGE
            if name in pods
            else HOST_APPLICATION_MEMORY_USAGE
            if name in apps
            else CONTAINER_MEMORY_USAGE
        )
        metrics.samples[metric.kind, (name,)] = size
    seen = snapshot(node(4), pods=PODS, apps=APPS, metrics_=metrics, in_force=kernel)
    assert advice(seen, Who("application" if who in apps else "pod", who)) == said
