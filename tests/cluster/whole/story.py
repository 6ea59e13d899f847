"""The story of one node: from an empty cluster to a best-effort pod that gives way."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

from tests.cluster.whole import look
from tests.cluster.whole.cluster import Whole, versions, wait
from tests.cluster.whole.objects import manifest
from tests.realkube.node import NODE

CRUNCHERS = 2
REQUEST_MILLI, LIMIT_MILLI, LIMIT_BYTES = 300, 600, 128 << 20
"""Of each cruncher, as its user wrote them (objects/shop.yaml)."""
WEB_LIMIT_MILLI = 1500
REQUESTED_US = CRUNCHERS * REQUEST_MILLI * look.PERIOD_US // 1000
SUPPRESSED_US = 9 * REQUESTED_US // 10
"""Best effort with less than 90 % of what it asked for is suppressed, whatever else runs here."""
CONFIGURED = {"EVICT": 95, "EVICT_LOWER": 90, "POLICY": "cfsQuota"}
NEEDED_MILLI = (CRUNCHERS + 1) * REQUEST_MILLI
Tell = Callable[[str], None]


class Story:
    """``tell`` gets each sentence as it becomes true. Raises AssertionError where one does not."""

    def __init__(self, whole: Whole, tell: Tell) -> None:
        self.whole = whole
        self.tell = tell
        self._reclaim = _reclaim()

    def all(self) -> None:
        self.components()
        self.capacity()
        self.webhook()
        self.limits()
        self.suppression()
        self.outage()
        self.eviction()
        self.objects()

    def configure(self, **values: object) -> None:
        """What differs from CONFIGURED."""
        self.whole.apply(manifest("platform", **{**CONFIGURED, **values}, RECLAIM=self._reclaim))

    def components(self) -> None:
        whole = self.whole
        self.tell(f"node {NODE} is Ready ({versions()})")
        self.configure(POLICY="cpuset")
        whole.manager.start()
        self.tell("the manager leads; slo-controller-config and a ClusterColocationProfile exist")
        whole.koordlet.start()
        self.tell("koordlet runs, and containerd asks it about each pod (NRI)")

    def capacity(self) -> None:
        whole = self.whole
        path = f"/apis/slo.koordinator.sh/v1alpha1/nodemetrics/{NODE}"
        usage = wait(
            "koordlet reports a NodeMetric",
            lambda: whole.plane.get(path)["status"]["nodeMetric"]["nodeUsage"]["resources"],
            self._said,
        )
        self.tell(f"koordlet reports: the node uses cpu {usage['cpu']}, memory {usage['memory']}")
        wait("the node has a NodeSLO", lambda: whole.plane.get(_SLO), self._said)
        offered = wait("the node offers batch resources", self._offered, self._said)
        self.tell(
            f"the manager offers {look.BATCH_CPU}={offered[look.BATCH_CPU]} (milli-cores), "
            f"{look.BATCH_MEMORY}={offered[look.BATCH_MEMORY]} on the node"
        )

    def webhook(self) -> None:
        whole = self.whole
        whole.apply(manifest("shop", STAGE=whole.stage))
        pods = wait("two crunchers", lambda: _all(whole.pods("cruncher"), CRUNCHERS), self._said)
        wanted = {look.BATCH_CPU: str(REQUEST_MILLI), look.BATCH_MEMORY: str(64 << 20)}
        for pod in pods:
            labels, spec = pod["metadata"]["labels"], pod["spec"]
            found = _plain(look.requests(pod))
            assert found == wanted, f"the webhook made {found} of what its user wrote"
            assert labels["koordinator.sh/qosClass"] == "BE", labels
            assert spec["priorityClassName"] == "koord-batch", spec
        self.tell(
            "a user creates a Deployment of cpu 300m; the webhook makes its pods QoS BE, "
            f"koord-batch, {look.BATCH_CPU}=300"
        )
        self.running()
        self.tell(
            "kube-scheduler places them by batch resources, kubelet runs them beside web (LS)"
        )

    def running(self) -> list[Any]:
        def all_run() -> list[Any] | None:
            pods = self.whole.pods("cruncher")
            ready = [pod for pod in pods if look.is_running(pod)]
            web = [pod for pod in self.whole.pods("web") if look.is_running(pod)]
            return ready if len(ready) == len(pods) == CRUNCHERS and web else None

        return wait("web and its crunchers run", all_run, self._said)

    def limits(self) -> None:
        for pod in self.running():
            group = look.cgroup(pod)
            wait(
                f"{group} has the limits of its batch resources",
                lambda group=group: as_written(look.limits(group), _quota_us()),  # type: ignore[misc]
                lambda group=group: f"it has {look.limits(group)}; {self._said()}",  # type: ignore[misc]
            )
        self.tell(
            f"their cgroups: {LIMIT_MILLI}m of CPU (quota {_quota_us()} us), "
            f"{LIMIT_BYTES >> 20} MiB of memory, weight by request"
        )
        self.configure()
        for pod in self.running():
            group = look.cgroup(pod)
            wait(
                f"{group} has no quota of its own",
                lambda group=group: as_written(look.limits(group)),  # type: ignore[misc]
                lambda group=group: f"it has {look.limits(group)}; {self._said()}",  # type: ignore[misc]
            )
        self.tell("with cpuSuppressPolicy cfsQuota, best effort has one quota for all its pods")

    def suppression(self) -> None:
        before = look.tier_quota_us()
        self.tell(f"while web is idle, best effort may use {_cores(before)}")
        self._suppressed_by(self._told)

    def _told(self) -> None:
        """The figures, and the condition that lasting suppression gives a pod."""
        used = look.used_cores(look.BE, 3.0)
        may = _cores(look.tier_quota_us())
        self.tell(f"web needs CPU: best effort may use {may}, and uses {used:.2f}")
        message = wait("a cruncher is told", self._suppressed_condition, self._said)
        self.tell(f"condition {_SUPPRESSED} of a cruncher: {message}")

    def _suppressed_condition(self) -> str | None:
        found = [c for pod in self.whole.pods("cruncher") for c in pod["status"]["conditions"]]
        told = (c["message"] for c in found if c["type"] == _SUPPRESSED and c["status"] == "True")
        return next(told, None)

    def _suppressed_by(self, meanwhile: Callable[[], None]) -> None:
        """Web needs CPU until best effort is suppressed and ``meanwhile`` has returned."""
        seen: list[str] = []
        busy = self.whole.stage / "busy"
        busy.touch()
        try:
            wait(
                f"best effort has less than {SUPPRESSED_US} us of {REQUESTED_US} us it asked for",
                lambda: _suppressed(seen),
                lambda: f"quotas seen: {', '.join(seen[-20:])}; {self._said()}",
            )
            meanwhile()
        finally:
            busy.unlink()

    def outage(self) -> None:
        """The node acts by itself meanwhile, and is right soon afterwards."""
        whole = self.whole
        (web,) = whole.pods("web")
        group = look.cgroup(web)
        whole.manager.process.end(9)  # it would write its own NodeSLO again
        whole.plane.end_server(9)
        self.tell("the API server and the manager are killed")
        self._suppressed_by(lambda: time.sleep(5.0))
        self.tell("koordlet goes on: web needs CPU again, and best effort gives way")
        whole.plane.start_server()
        back_s = time.monotonic()
        burst = {"cpuBurstStrategy": {"policy": "cpuBurstOnly", "cpuBurstPercent": 100}}
        wait("the server takes writes", lambda: self._patch_slo(burst), within_s=60)
        limit_us = WEB_LIMIT_MILLI * look.PERIOD_US // 1000
        wait(
            "koordlet follows the changed NodeSLO",
            lambda: look.burst_us(group) == limit_us,
            lambda: f"burst {look.burst_us(group)} us; {self._said()}",
        )
        right_s = time.monotonic() - back_s
        self.tell(
            f"the API server is back and has another NodeSLO: followed {right_s:.1f} s after its "
            f"return (cpu.cfs_burst_us of web: {limit_us})"
        )
        whole.manager.start()
        wait(
            "the manager writes the NodeSLO of the ConfigMap again",
            lambda: look.burst_us(group) == 0,
            lambda: f"burst {look.burst_us(group)} us; {self._said()}",
        )
        self.tell("the manager is back: the NodeSLO is that of the ConfigMap, and web's burst gone")

    def eviction(self) -> None:
        whole = self.whole
        before = {pod["metadata"]["uid"] for pod in self.running()}
        used = look.memory_used_percent()
        threshold = max(1, int(used) - 1)
        self.configure(EVICT=threshold, EVICT_LOWER=threshold - 1)
        self.tell(
            f"the machine uses {used:.1f} % of its memory; the administrator sets the threshold "
            f"to {threshold} %"
        )
        try:
            gone = wait(
                "a cruncher is evicted",
                lambda: before - {pod["metadata"]["uid"] for pod in whole.pods("cruncher")} or None,
                self._said,
            )
            assert [p for p in whole.pods("web") if look.is_running(p)], "web was evicted too"
        finally:
            self.configure()
        self.tell(f"koordlet evicts {len(gone)} of {CRUNCHERS} crunchers; web runs on")
        event = wait("an event tells why", self._eviction_event, self._said)
        self.tell(f"event {event['reason']}: {event['message']}")
        self.running()
        self.tell("with the threshold back, the Deployment's new pod runs")

    def objects(self) -> None:
        pod = self.whole.pods("cruncher")[0]["metadata"]["name"]
        for command in (
            ("get", "nodemetric,nodeslo"),
            ("get", "node", NODE, "-o", f"custom-columns={_COLUMNS}"),
            ("-n", "shop", "get", "pods", "-o", "wide"),
            ("-n", "shop", "get", "pod", pod, "-o", f"jsonpath={_CONDITIONS}"),
            ("-n", "shop", "get", "events", "--field-selector", "reason=evictPodSuccess"),
        ):
            self.tell(f"$ kubectl {' '.join(command)}\n{self.whole.kubectl(*command).rstrip()}")
        explained = self.whole.manager.command("explain", NODE)
        self.tell(f"$ koord-scheduler explain {NODE}\n{explained.rstrip()}")
        self.tell(f"$ koordlet status\n{self.whole.koordlet.command('status').rstrip()}")

    def _patch_slo(self, spec: dict[str, Any]) -> bool:
        patch = json.dumps({"spec": spec})
        self.whole.kubectl("patch", "nodeslo", NODE, "--type=merge", "-p", patch)
        return True

    def _offered(self) -> dict[str, str] | None:
        """Enough for what the story starts."""
        found: dict[str, str] = self.whole.node_object()["status"]["allocatable"]
        return found if int(found[look.BATCH_CPU]) >= NEEDED_MILLI else None

    def _eviction_event(self) -> Any:
        items = self.whole.plane.get("/api/v1/namespaces/shop/events")["items"]
        return next((e for e in items if "vict" in e["reason"]), None)

    def _said(self) -> str:
        """What a failure needs."""
        whole = self.whole
        parts = {
            "node": self._asked("get", "node", NODE, "-o", "jsonpath={.status.allocatable}"),
            "reports": self._asked("get", "nodemetric,nodeslo", "-o", "yaml")[-4000:],
            "pods": self._asked("-n", "shop", "get", "pods", "-o", "wide"),
            "events": self._asked("get", "events", "-A")[-4000:],
            "koordlet": whole.koordlet.process.said()[-3000:],
            "manager": whole.manager.process.said()[-3000:],
        }
        return "\n".join(f"--- {name}:\n{text}" for name, text in parts.items())

    def _asked(self, *command: str) -> str:
        try:
            return self.whole.kubectl(*command)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            return str(error)


_SUPPRESSED = "koordinator.sh/Suppressed"
_SLO = f"/apis/slo.koordinator.sh/v1alpha1/nodeslos/{NODE}"
_COLUMNS = (
    "NAME:.metadata.name,CPU:.status.allocatable.cpu,"
    r"BATCH-CPU:.status.allocatable.kubernetes\.io/batch-cpu,"
    r"BATCH-MEMORY:.status.allocatable.kubernetes\.io/batch-memory"
)
_CONDITIONS = r'{range .status.conditions[*]}{.type}={.status} {.message}{"\n"}{end}'


def _reclaim() -> int:
    """In percent of the node. A machine that others keep busy leaves nothing of itself: best effort
    is then offered more than there is, and gets what suppression leaves it."""
    with open("/proc/loadavg") as file:
        load = float(file.read().split()[0])
    return 100 if load < 0.5 else 200


def _all(pods: list[Any], count: int) -> list[Any] | None:
    return pods if len(pods) == count else None


def _plain(amounts: dict[str, str]) -> dict[str, str]:
    """Memory in bytes, however it is written."""
    return {
        name: str(int(text[:-2]) << 20) if text.endswith("Mi") else text
        for name, text in amounts.items()
    }


def _quota_us() -> int:
    return LIMIT_MILLI * look.PERIOD_US // 1000


def as_written(found: look.Limits, quota_us: int = -1) -> bool:
    """Whether these are the limits of a cruncher; its own quota counts where the tier has none."""
    shares = REQUEST_MILLI * 1024 // 1000
    return found == look.Limits(shares, quota_us, LIMIT_BYTES)


def _suppressed(seen: list[str]) -> int | None:
    quota = look.tier_quota_us()
    if not seen or seen[-1] != str(quota):
        seen.append(str(quota))
    return quota if quota is not None and quota < SUPPRESSED_US else None


def _cores(quota_us: int | None) -> str:
    return "all cores" if quota_us is None else f"{quota_us / look.PERIOD_US:.2f} cores"


def teller(show: Callable[[str], None] = print) -> Tell:
    """With the seconds since it was made and since the sentence before."""
    begun_s = last_s = time.monotonic()

    def tell(text: str) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        show(f"{now_s - begun_s:7.1f} s  (+{now_s - last_s:5.1f})  {text}")
        last_s = now_s

    return tell
