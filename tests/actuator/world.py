"""A fake kernel with an actuator on it, as the tests of this room use them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from koordlet_fakefs.host import FakeHost

from koordlet.actuator.actuator import Actuator
from koordlet.actuator.journal.journal import Contents, Journal, load
from koordlet.actuator.outcome import Outcome
from koordlet.actuator.restore import RestoreReport, restore
from koordlet.decision.plan import Plan, Result, Setting
from koordlet.decision.resource import Resource, Value
from koordlet.decision.why import Why
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.host import Host
from koordlet.kernel.knobs import Knobs

BOOT = "11111111-2222-3333-4444-555555555555"
WHY = Why("test.rule", "the test wants it")

Want = tuple[str, Resource, Value]


def setting(cgroup: str, resource: Resource, value: Value) -> Setting:
    return Setting(cgroup, resource, value, WHY)


def plan(owner: str, *wants: Want, keep: Iterable[tuple[str, Resource]] = ()) -> Plan:
    return Plan(owner, tuple(setting(*want) for want in wants), tuple(keep))


class World:
    """``now`` moves by hand; ``heard`` is what the audit heard since the last apply."""

    def __init__(self, host: Host, directory: str) -> None:
        self.host = host
        self.cgroups = Cgroups(host, detect(host))
        self.journal_path = os.path.join(directory, "state", "journal")
        self.now = 1000.0
        self.heard: list[Outcome] = []
        self.journal: Journal | Contents = Contents({})
        self.start()

    def start(
        self, *, observe: bool = False, ranks: tuple[str, ...] = (), boot: str = BOOT
    ) -> None:
        """A daemon start: everything in memory is new."""
        self.close()
        self.knobs = Knobs(self.host, self.cgroups)
        if observe:
            self.journal = load(self.journal_path, boot)
        else:
            self.journal = Journal(self.journal_path, boot_id=boot)
        self.actuator = Actuator(
            self.knobs, self.journal, observe=observe, ranks=ranks, audit=self.heard.append
        )

    def close(self) -> None:
        if isinstance(self.journal, Journal):
            self.journal.close()

    def apply(self, *plans: Plan, after_s: float = 1.0) -> tuple[Outcome, ...]:
        self.heard.clear()
        self.now += after_s
        return self.actuator.apply(plans, now=self.now, time=self.now)

    def want(self, owner: str, *wants: Want, after_s: float = 1.0) -> list[Result]:
        """Results of this owner's settings, in the order of the outcomes."""
        outcomes = self.apply(plan(owner, *wants), after_s=after_s)
        return [outcome.result for outcome in outcomes if outcome.owner == owner]

    def restore(self, *, dry_run: bool = False, force: bool = False) -> RestoreReport:
        """As the CLI does it, without a daemon."""
        self.close()
        self.knobs = Knobs(self.host, self.cgroups)
        return restore(
            self.knobs,
            self.journal_path,
            boot_id=BOOT,
            now=self.now,
            time=self.now,
            dry_run=dry_run,
            force=force,
        )

    def value(self, cgroup: str, resource: Resource) -> Value:
        return self.knobs.read(cgroup, resource)

    def path(self, cgroup: str, resource: Resource) -> str:
        return self.knobs.path(cgroup, resource)


def fake(layout: str = "hybrid", **options: object) -> FakeHost:
    return FakeHost(layout, **options)


def unplug(world: World, cpu: int) -> None:
    """What the kernel does to v1 cpusets when a CPU goes."""
    for hierarchy in world.host.machine.hierarchies:
        for group in hierarchy.root.subtree():
            if group.cpuset is not None:
                group.cpuset.cpus -= {cpu}


def replug(world: World, cpu: int) -> None:
    """And when it comes back: only the root gets it again."""
    for hierarchy in world.host.machine.hierarchies:
        if hierarchy.root.cpuset is not None:
            hierarchy.root.cpuset.cpus |= {cpu}
