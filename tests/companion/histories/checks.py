"""What must hold in every history (section 7 of the issue), judged by what the server was told.

They know what a decision could know: a pod that somebody else bound while the decision was made
counts for the next one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from koord_scheduler.daemon.scheduler.scheduler import Scheduler
from koord_scheduler.plan.outcomes import Placement
from koord_scheduler.plan.preemption.pods import Preemption
from koord_scheduler.plan.queue import Unit
from koordlet.protocol.objects.times import instant
from tests.companion.histories.hands import (
    GANG,
    GPU,
    OURS,
    QUOTA,
    SPACE,
    Hands,
    Tree,
    cpu_of,
    milli,
)
from tests.fakekube.store import Logged

DEVICES = "scheduling.koordinator.sh/device-allocated"
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
MOST_MIGRATING = 1
"""On a node; the histories' configuration says so."""


class Checks:
    """``broken``: what did not hold, in words. ``seen``: how often what came about."""

    def __init__(self, hands: Hands) -> None:
        self.hands = hands
        self.broken: list[str] = []
        self.seen: Counter[str] = Counter()
        self.clocks_moved = False
        self._read = 0
        self._known: dict[str, frozenset[str]] = {}
        """Pod -> pods of others of which its decision knew."""
        self._for: dict[str, str] = {}
        """Victim -> the pod for which it was chosen."""
        self._priority: dict[str, int] = {}
        """Of every pod that ever was, by name."""
        self._evicted: dict[tuple[str, str], float] = {}
        self._migrating: dict[str, tuple[str, str]] = {}
        """Job -> its pod and the node of it."""

    def watch(self, scheduler: Scheduler) -> None:
        """Of a role that begins: its decisions are looked at as they are sent."""
        send: Any = scheduler.bindings.send

        def sent(unit: Unit, placements: Sequence[Placement], *more: Any) -> None:
            self._decided(scheduler, placements)
            send(unit, placements, *more)

        setattr(scheduler.bindings, "send", sent)  # noqa: B010
        preempt: Any = scheduler.evictions.preempt

        def preempts(found: Preemption) -> Any:
            for each in found.victims:
                self._for[each.key] = found.pod.key
            return preempt(found)

        setattr(scheduler.evictions, "preempt", preempts)  # noqa: B010

    def look(self) -> None:
        """At all changes since the last look; called at each."""
        log = self.hands.fake.store
        for change in list(log.log[self._read - log.compacted :] if self._read else log.log):
            self._read = change.version
            match change.resource.plural:
                case "pods":
                    self._pod(change)
                case "podmigrationjobs":
                    self._job(change)
        self._read = log.version

    def _say(self, text: str) -> None:
        self.broken.append(text)

    # Decisions.

    def _decided(self, scheduler: Scheduler, placements: Sequence[Placement]) -> None:
        self.seen["decisions"] += 1
        claims = scheduler.cluster.claims.values()
        known = frozenset(each.pod.key for each in claims if each.pod.scheduler != OURS)
        for each in placements:
            self._known[each.pod.key] = known
        self._gangs(scheduler, placements)
        self._quotas(scheduler, placements)

    def _gangs(self, scheduler: Scheduler, placements: Sequence[Placement]) -> None:
        book = scheduler.parts.gangs
        assert book is not None
        for gang in {each.pod.gang for each in placements if each.pod.gang}:
            name = gang.partition("/")[2]
            if name not in self.hands.strict or book.satisfied(book.group_of(gang)):
                continue
            keys = {each.pod.key for each in placements if each.pod.gang == gang}
            keys |= {k for k, each in scheduler.assumed.items() if each.pod.gang == gang}
            keys |= {
                f"{SPACE}/{pod['metadata']['name']}"
                for pod in self.hands.all("pods")
                if pod["metadata"]["annotations"].get(GANG + "name") == name
                and pod["spec"].get("nodeName")
            }
            self.seen["gangs"] += 1
            if len(keys) < self.hands.gangs[name]:
                least = self.hands.gangs[name]
                self._say(f"strict gang {name}: {len(keys)} members of at least {least} begin")

    def _quotas(self, scheduler: Scheduler, placements: Sequence[Placement]) -> None:
        quotas = scheduler.parts.quotas
        assert quotas is not None
        for name in {each.pod.labels.get(QUOTA, "") for each in placements} - {""}:
            found = quotas.share(name)
            if found is None:
                continue
            keys = {
                each["metadata"]["name"]: cpu_of(each)
                for each in self.hands.all("pods")
                if each["metadata"]["labels"].get(QUOTA) == name
                and (
                    each["spec"].get("nodeName")
                    or f"{SPACE}/{each['metadata']['name']}" in scheduler.assumed
                    or any(p.pod.key.endswith("/" + each["metadata"]["name"]) for p in placements)
                )
            }
            tree, share = found
            runtime = tree.runtime_of(share).get("cpu", 0)
            self.seen["quotas"] += 1
            if sum(keys.values()) > runtime:
                text = f"quota {name}: {sum(keys.values())}m CPU used of a runtime of {runtime}m"
                self._say(text)

    # What the server was told.

    def _pod(self, change: Logged) -> None:
        pod = change.after
        self._priority[pod["metadata"]["name"]] = pod["spec"].get("priority", 0)
        was = change.before["spec"].get("nodeName") if change.before is not None else None
        node = pod["spec"].get("nodeName")
        if was and node != was:
            self._say(f"pod {pod['metadata']['name']} moved from {was} to {node}")
        if pod["spec"]["schedulerName"] != OURS:
            return
        if change.gone and not self.hands.busy:
            self._evicted_pod(pod)
        elif node and not was and not self.hands.busy:
            self.seen["bound"] += 1
            self._room(pod, node)
            self._devices(node)

    def _room(self, pod: Tree, node: str) -> None:
        amounts = next(
            (
                each["status"]["allocatable"]
                for each in self.hands.all("nodes")
                if each["metadata"]["name"] == node
            ),
            None,
        )
        if amounts is None:
            return
        name = pod["metadata"]["name"]
        known = self._known.get(f"{SPACE}/{name}", frozenset())
        there = [
            each
            for each in self.hands.all("pods")
            if each["spec"].get("nodeName") == node
            and (
                each["spec"]["schedulerName"] == OURS
                or f"{SPACE}/{each['metadata']['name']}" in known
            )
        ]
        used, most = sum(map(cpu_of, there)), milli(amounts["cpu"])
        if used > most or len(there) > int(amounts["pods"]):
            self._say(f"node {node}: {used}m of {most}m CPU after pod {name}, {len(there)} pods")

    def _devices(self, node: str) -> None:
        used: Counter[int] = Counter()
        users: dict[str, Counter[int]] = {}
        for pod in self.hands.all("pods"):
            if pod["spec"].get("nodeName") == node:
                allocated = pod["metadata"]["annotations"].get(ALLOCATED)
                uid = json.loads(allocated)["uid"] if allocated else ""
                cards = _cards(pod)
                self.seen["cards"] += len(cards)
                users.setdefault(uid, Counter()).update(cards)
        for kept in self.hands.all("reservations"):
            status = kept.get("status") or {}
            if (status.get("phase"), status.get("nodeName")) == ("Available", node):
                self.seen["reserved cards"] += len(_cards(kept))
                # What its users have is a part of what it keeps.
                used += _cards(kept) | users.pop(kept["metadata"]["uid"], Counter())
        for cards in users.values():
            used += cards
        for minor, share in used.items():
            if share > 100:
                self._say(f"node {node}: card {minor} was given {share} %")

    def _evicted_pod(self, pod: Tree) -> None:
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        said = [
            each.get("reason", "")
            for each in pod.get("status", {}).get("conditions", ())
            if each["type"] == "DisruptionTarget" and each["status"] == "True"
        ]
        if "PreemptionByScheduler" in said:
            self.seen["preempted"] += 1
            whom = self._for.get(f"{SPACE}/{name}", "").partition("/")[2]
            if self._priority.get(whom, 0) <= pod["spec"].get("priority", 0):
                self._say(f"pod {name} was preempted for {whom or 'nobody'} of no higher priority")
            return
        if "TerminationByKoordScheduler" in said:
            self.seen["revoked"] += 1
            return
        self.seen["migrated"] += 1
        if not pod["metadata"].get("ownerReferences"):
            conditions = pod.get("status", {}).get("conditions", ())
            self._say(f"pod {name} was evicted, and nobody makes it anew; conditions {conditions}")
        if not node:
            self._say(f"pod {name} was evicted, and it had no node")
            return
        pair = (pod["metadata"]["labels"].get("app", name), node)
        before, came = self._evicted.get(pair), pod["metadata"]["creationTimestamp"]
        if before is not None and not self.clocks_moved and came > instant(before):
            self._say(f"pod {name} was evicted from {node}, where another of {pair[0]} went before")
        self._evicted[pair] = self.hands.wall()

    def _job(self, change: Logged) -> None:
        name = change.after["metadata"]["name"]
        phase = change.after.get("status", {}).get("phase", "")
        if change.gone or phase in ("Succeeded", "Failed"):
            self._migrating.pop(name, None)
            return
        if phase != "Running" or name in self._migrating:
            return
        of = change.after["spec"].get("podRef", {}).get("name", "")
        pods = {each["metadata"]["name"]: each for each in self.hands.all("pods")}
        node = pods.get(of, {"spec": {}})["spec"].get("nodeName", "")
        self._migrating[name] = (of, node)
        self.seen["jobs"] += 1
        if sum(pod == of for pod, _ in self._migrating.values()) > 1:
            self._say(f"two jobs move pod {of} at the same time")
        together = sum(where == node for _, where in self._migrating.values())
        if node and together > MOST_MIGRATING:
            self._say(f"{together} pods migrate from node {node} at the same time")


def _cards(item: Tree) -> Counter[int]:
    """Return how much of each GPU a pod or a Reservation was given."""
    text = (item["metadata"].get("annotations") or {}).get(DEVICES)
    given = json.loads(text).get("gpu", ()) if text else ()
    return Counter({each["minor"]: int(each["resources"].get(GPU, 0)) for each in given})
