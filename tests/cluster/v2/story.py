"""The story of a node as most people have it, from limits to a reboot.

Each step asserts what it tells. Bounds are counts, values and seconds of the guest's clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from koordlet.kernel.cgroup.conversions import shares_to_modern_weight, shares_to_weight
from tests.cluster.v2 import objects
from tests.cluster.v2.cluster import (
    CGROUPS,
    NODE,
    SHOP,
    TREE,
    Emulated,
    container_cgroup,
    is_running,
    pod_cgroup,
)
from tests.cluster.v2.slices import Gaps, gaps
from tests.cluster.whole.story import Tell

BE, BURSTABLE, ROOT = (f"{CGROUPS}/{each}" for each in (TREE.besteffort, TREE.burstable, TREE.root))
PERIOD_US = 100_000
PODS_THAT_COME_AND_GO = 20
UNLIMITED_S_A_MINUTE = 1.0
"""The most that best effort may have no limit, while kubelet writes its slices as it likes."""
BACK_WITHIN_S = 20.0
"""Protection of memory, after a resize that took it: what koordlet itself must write again. An
emulated CPU takes twenty times as long, so this is a second of a real one."""
MIB = 1 << 20
DECISIONS = "/var/lib/koordlet/decisions/*.jsonl"
BATCH_CPU = "kubernetes.io/batch-cpu"


class Story:
    """``tell`` gets each sentence as it becomes true. Raises AssertionError where one does not."""

    def __init__(self, node: Emulated, tell: Tell, churn: int = PODS_THAT_COME_AND_GO) -> None:
        self.node, self.machine, self.tell = node, node.machine, tell
        self.churn = churn

    def all(self) -> None:
        self.components()
        self.capacity()
        self.limits()
        self.cpu_set()
        self.suppress()
        self.pods_that_come_and_go()
        self.lower_a_pod()
        self.memory()
        self.kubelet_again()
        self.units_again()
        self.boot_again()
        self.eviction()
        self.restore()

    def short(self) -> None:
        """For the CRI proxy."""
        self.components()
        self.capacity()
        self.limits()
        self.lower_a_pod()

    def components(self) -> None:
        info = self.node.plane.get(f"/api/v1/nodes/{NODE}")["status"]["nodeInfo"]
        systemd = self.machine.shell("systemctl --version").split()[1]
        self.tell(
            f"node {NODE} is Ready: {info['osImage']}, Linux {info['kernelVersion']}, systemd "
            f"{systemd}, kubelet {info['kubeletVersion']}, {info['containerRuntimeVersion']}, "
            f"{self.machine.shell('runc --version').splitlines()[0]}"
        )
        self.node.apply(*objects.platform(cpuSuppressPolicy="cpuset"))
        self.node.manager.start()
        self.tell("the manager leads")
        self.node.start_koordlet()
        who = "the CRI proxy" if self.node.by_proxy else "containerd (NRI)"
        self.tell(f"koordlet's DaemonSet runs, and {who} asks it about each pod")

    def capacity(self) -> None:
        def offered() -> str | None:
            found = self.node.plane.get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"]
            return found[BATCH_CPU] if int(found[BATCH_CPU]) >= 600 else None

        self.tell(f"the node offers {self.node.wait('batch resources', offered)}m of batch CPU")

    def limits(self) -> None:
        self.node.apply(objects.shop())
        self.node.apply(objects.cruncher("crunch"), objects.web())
        crunch, web = (self.running(name) for name in ("crunch", "web"))
        assert crunch["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE", crunch
        group = container_cgroup(crunch)
        shares = 300 * 1024 // 1000
        # Until best effort has a quota as a whole, each pod has its own.
        self.holds(f"{group}/cpu.max", "60000 100000")
        self.holds(f"{pod_cgroup(crunch)}/cpu.max", "60000 100000")
        self.holds(f"{group}/memory.max", str(128 * MIB))
        self.holds(
            f"{group}/cpu.weight",
            *map(str, (shares_to_weight(shares), shares_to_modern_weight(shares))),
        )
        self.holds(f"{container_cgroup(web)}/cpu.max", "60000 100000")
        self.tell(
            "a user's pod became best effort; its scope and its slice have 600m of CPU, its scope "
            "128 MiB of memory and the weight of 300m"
        )

    def cpu_set(self) -> None:
        status = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": "1"})}
        same = {"cpu": "1", "memory": "64Mi"}
        labels = {"koordinator.sh/qosClass": "LSR"}
        pinned = objects.pod(
            "pinned", {"requests": same, "limits": same}, labels, priorityClassName="koord-prod"
        )
        pinned["metadata"]["annotations"] = status
        self.node.apply(pinned)
        group = container_cgroup(self.running("pinned"))
        self.holds(f"{group}/cpuset.cpus", "1")

        def fewer() -> str | None:
            found = self._value(f"{BE}/cpuset.cpus")
            return found if found and 1 not in _cpus(found) else None

        said = self.node.wait("best effort leaves the CPU of pinned", fewer)
        self.tell(f"pinned (LSR) has CPU 1 for itself; best effort has CPUs {said} (cpuset)")
        self.node.kubectl("-n", SHOP, "delete", "pod", "pinned", "--wait=false")

    def suppress(self) -> None:
        self.node.apply(*objects.platform(cpuSuppressPolicy="cfsQuota"))
        quota = self.node.wait("best effort has a quota", self._quota_us)
        told = self.node.wait("systemd knows a quota", self._told)
        self.tell(
            f"best effort as a whole has {quota} us each {PERIOD_US} us; systemd knows {told}"
        )

    def pods_that_come_and_go(self) -> None:
        """And kubelet writes its slices again with each, and each minute."""
        before = self.conflicts()
        watched = f"{BE}/cpu.max"
        with self.machine.watching(watched) as seen:
            for number in range(self.churn):
                name = f"short-{number}"
                self.node.apply(objects.cruncher(name) if number % 2 else objects.web(name))
                self.running(name)
                self.node.kubectl("-n", SHOP, "delete", "pod", name, "--wait=false")
                self.node.wait(f"{name} is gone", lambda n=name: self.node.pod(n) is None)  # type: ignore[misc]
        found = gaps(seen, watched, _is_limited)
        self.tell(f"{self.churn} pods came and went; best effort had no limit: {found}")
        assert found.worst_minute_s <= UNLIMITED_S_A_MINUTE, found
        assert self.conflicts() == before, "kubelet's writes were called a conflict"
        self.tell("no second writer was named")

    def lower_a_pod(self) -> None:
        whole = {
            "requests": {"cpu": "200m", "memory": "64Mi"},
            "limits": {"cpu": "500m", "memory": "128Mi"},
        }
        own = {"requests": {"cpu": "100m"}, "limits": {"cpu": "400m"}}
        labels = {"koordinator.sh/qosClass": "LS"}
        pod = objects.pod("whole", own, labels, whole)
        containers = pod["spec"]["containers"]  # two, whose budgets are more than the lower limit
        containers.append({**containers[0], "name": "side"})
        self.node.apply(pod)
        directory = pod_cgroup(self.running("whole"))
        self.holds(f"{directory}/cpu.max", "50000 100000")
        burst = self.node.wait(
            "the pod has a burst budget that forbids 450m",
            lambda: (budget := int(self._value(f"{directory}/cpu.max.burst"))) > 45000 and budget,
        )
        self.resize("whole", {"resources": {"limits": {"cpu": "450m"}}})
        self.holds(f"{directory}/cpu.max", "45000 100000")
        self.settled("whole")
        lower = int(self._value(f"{directory}/cpu.max.burst"))
        assert lower <= 45000, lower
        self.tell(
            f"a pod's limit as a whole went from 500m to 450m, its burst from {burst} to {lower} us"
        )
        self.node.kubectl("-n", SHOP, "delete", "pod", "whole", "--wait=false")
        self.resize("web", _container({"limits": {"cpu": "500m"}}))
        self.holds(f"{container_cgroup(self.running('web'))}/cpu.max", "50000 100000")
        self.settled("web")
        self.tell("a container's limit went from 600m to 500m in place")

    def memory(self) -> None:
        web, crunch = self.running("web"), self.running("crunch")
        group, batch = container_cgroup(web), container_cgroup(crunch)
        high = 64 + (128 - 64) * objects.HIGH_PERCENT // 100
        self.holds(f"{group}/memory.min", str(32 * MIB))
        self.holds(f"{group}/memory.low", str(64 * MIB))
        self.at_least(f"{pod_cgroup(web)}/memory.min", 32 * MIB)
        self.at_least(f"{BURSTABLE}/memory.min", 32 * MIB)
        self.at_least(f"{ROOT}/memory.min", 32 * MIB)
        near = self.node.wait(
            "best effort has memory.high",
            lambda: _number(self._value(f"{batch}/memory.high")) or None,
        )
        assert near // MIB == high, near
        self.tell(
            f"memory.min and memory.low of web hold up to the root; crunch has memory.high {near}"
        )
        files = [f"{where}/memory.min" for where in (group, pod_cgroup(web), BURSTABLE, ROOT)]
        with self.machine.watching(*files) as seen:
            self.resize("web", _container({"limits": {"cpu": "550m"}}))
            self.holds(f"{group}/cpu.max", "55000 100000")
            self.settled("web")
        worst = {file: gaps(seen, file, lambda v: int(v) >= 32 * MIB) for file in files}
        for file, found in worst.items():
            self.tell(f"while web was resized, {file.removeprefix(CGROUPS)} was low: {found}")
        _judge(worst)

    def kubelet_again(self) -> None:
        said = "journalctl --no-pager _PID=$(systemctl show -P MainPID kubelet)"

        def restart() -> None:
            self.machine.shell("systemctl restart kubelet")
            # By then it has set up its slices.
            looks = f"{said} | grep -c 'SyncLoop ADD'"
            self.node.wait("kubelet sees its pods", lambda: int(self.machine.shell(looks)) > 0)

        self._stays("kubelet was restarted", restart)
        self.node.wait("the node is Ready", self.node.is_ready)

    def units_again(self) -> None:
        def reload() -> None:
            for _ in range(3):
                self.machine.shell("systemctl daemon-reload && sleep 5")

        self._stays("systemd read its units again, three times", reload)

    def boot_again(self) -> None:
        before = self.node.koordlet_runs()
        boot = self._value("/proc/sys/kernel/random/boot_id")
        self.machine.shell("systemctl reboot --no-block", check=False)
        self.node.wait(
            "it boots again", lambda: self._value("/proc/sys/kernel/random/boot_id") != boot
        )
        self.node.wait(
            "koordlet runs again",
            lambda: (found := self.node.koordlet_runs()) is not None and found != before,
        )
        self.node.wait("the node is Ready", self.node.is_ready)
        for name in ("crunch", "web"):
            self.node.wait(f"{name} runs again", lambda n=name: self._restarted(n))  # type: ignore[misc]
        group = container_cgroup(self.running("crunch"))
        self.holds(f"{group}/memory.max", str(128 * MIB))
        self.node.wait("best effort has a quota", self._quota_us)
        self.node.wait("systemd knows a quota", self._told)
        self.holds(f"{container_cgroup(self.running('web'))}/memory.min", str(32 * MIB))
        self.at_least(f"{BURSTABLE}/memory.min", 32 * MIB)
        self.tell("the machine was booted again: pods run, and all of it holds again")

    def eviction(self) -> None:
        used = _used_percent(self._value("/proc/meminfo"))
        threshold = max(2, int(used) - 1)
        self.node.apply(
            *objects.platform(
                memoryEvictThresholdPercent=threshold, memoryEvictLowerPercent=threshold - 1
            )
        )
        try:
            self.node.wait("crunch is evicted", lambda: not is_running(self.node.pod("crunch")))
        finally:
            self.node.apply(*objects.platform())
        self.running("web")
        self.tell(
            f"the node uses {used:.0f} % of its memory; with a threshold of {threshold} % koordlet "
            "evicted crunch, and web runs on"
        )

    def restore(self) -> None:
        self.node.kubectl("-n", "koordinator-system", "delete", "daemonset", "koordlet")
        self.node.wait("koordlet is gone", lambda: not self.node.koordlet_pods())
        self.machine.shell("koordlet restore")
        assert not _is_limited(self._value(f"{BE}/cpu.max"))
        assert self._told() is None
        self.tell(
            "koordlet was taken away and `koordlet restore` called: best effort has no quota, and "
            "systemd knows none"
        )

    def running(self, name: str) -> Any:
        """The pod, once it runs."""

        def found() -> Any:
            pod = self.node.pod(name)
            ready = is_running(pod) and pod["status"]["containerStatuses"][0]["state"]
            return pod if ready and "running" in ready else None

        return self.node.wait(f"{name} runs", found)

    def holds(self, path: str, *values: str) -> None:
        seen: list[str] = []

        def holds() -> bool:
            seen.append(self._value(path))
            return seen[-1] in values

        try:
            self.node.wait(f"{path} is {' or '.join(values)}", holds)
        except AssertionError as error:
            raise AssertionError(f"it was {sorted(set(seen))}; {error}") from error

    def at_least(self, path: str, amount: int) -> None:
        self.node.wait(f"{path} is {amount}", lambda: _number(self._value(path)) >= amount)

    def resize(self, name: str, spec: Any) -> None:
        patch = json.dumps({"spec": spec})
        self.node.kubectl("-n", SHOP, "patch", "pod", name, "--subresource=resize", "-p", patch)

    def settled(self, name: str) -> None:
        """The pod's last resize is done, and the kernel has refused nothing meanwhile."""
        errors: list[Any] = []

        def done() -> bool:
            conditions = self.node.pod(name)["status"].get("conditions", ())
            mine = [each for each in conditions if each["type"].startswith("PodResize")]
            errors.extend(each for each in mine if each.get("reason") == "Error")
            return not mine

        self.node.wait(f"the resize of {name} is done", done)
        assert errors == [], errors[-1]

    def conflicts(self) -> Sequence[str]:
        """Of the decisions of koordlet; its command takes an emulated CPU minutes."""
        text = f'grep -h \'"result":"conflict"\' {DECISIONS} || [ $? = 1 ]'
        return self.machine.shell(text).splitlines()

    def _stays(self, what: str, do: Callable[[], object]) -> None:
        """What kubelet's slices hold while somebody writes them again."""
        web = container_cgroup(self.running("web"))
        before = self.conflicts()
        limits: dict[str, Callable[[str], bool]] = {
            f"{BE}/cpu.max": _is_limited,
            f"{BURSTABLE}/memory.min": lambda value: int(value) >= 32 * MIB,
            f"{web}/memory.min": lambda value: int(value) >= 32 * MIB,
        }
        with self.machine.watching(*limits) as seen:
            do()
            self.machine.shell("sleep 20")
        found = {path: gaps(seen, path, holds) for path, holds in limits.items()}
        for path, each in found.items():
            self.tell(f"{what}: {path.removeprefix(CGROUPS)} was not in force {each}")
        _judge(found)
        assert self.conflicts() == before

    def _restarted(self, name: str) -> bool:
        pod = self.node.pod(name)
        (status,) = pod["status"]["containerStatuses"]
        return status["restartCount"] > 0 and "running" in status["state"]

    def _value(self, path: str) -> str:
        """Empty where it is not there."""
        return self.machine.read(path).get(path, "")

    def _quota_us(self) -> int | None:
        return _number(self._value(f"{BE}/cpu.max").split()[0]) or None

    def _told(self) -> str | None:
        """What systemd knows of best effort's quota; None: nothing."""
        unit = BE.rpartition("/")[2]
        said = self.machine.shell(f"systemctl show -P CPUQuotaPerSecUSec {unit}").strip()
        return None if said == "infinity" else said


def _judge(found: dict[str, Gaps]) -> None:
    """systemd itself writes what it was told of kubelet's slices, koordlet the rest."""
    for path, each in found.items():
        if path.rpartition("/")[0] in (BE, BURSTABLE, ROOT):
            assert each.worst_minute_s <= UNLIMITED_S_A_MINUTE, (path, each)
        else:
            assert each.longest_s <= BACK_WITHIN_S, (path, each)


def _container(resources: Any) -> Any:
    return {"containers": [{"name": "main", "resources": resources}]}


def _is_limited(value: str) -> bool:
    return not value.startswith("max")


def _number(text: str) -> int:
    """0 where there is none."""
    return int(text) if text.isdigit() else 0


def _cpus(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _used_percent(meminfo: str) -> float:
    values = {line.split(":")[0]: int(line.split()[1]) for line in meminfo.splitlines()}
    return 100.0 * (1.0 - values["MemAvailable"] / values["MemTotal"])
