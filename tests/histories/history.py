"""One history: a machine, a daemon, steps, and the invariants after each of them."""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import structlog
from koordlet_fakefs.faults import Fault, Op

from koordlet.actuator.restore import Status
from koordlet.decision.resource import Resource, Value
from koordlet.engine.parts import CannotStartError
from tests.histories import policies
from tests.histories.broken import check
from tests.histories.daemon import Daemon, Disk, KilledError
from tests.histories.invariants import Watch, objects_of_gone
from tests.histories.machine import APPLICATIONS, Machine, Pod
from tests.histories.network import check_divided, compare_network
from tests.histories.replayed import replayed
from tests.histories.steps import KINDS

REPLAYED_EVERY = 20
"""Of that many histories one is decided again: it takes twice as long."""
QUIET_S = 400
"""After so long all retries, graces and patience are over."""


class Step(NamedTuple):
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.seed}"


def generate(seed: int) -> list[Step]:
    chance = random.Random(seed)
    kinds, weights = list(KINDS), [weight for _, weight in KINDS.values()]
    number = chance.choice((6, 10, 14, 20))
    return [Step(kind, chance.getrandbits(32)) for kind in chance.choices(kinds, weights, k=number)]


class History:
    """``calm_s``: how long nothing has hindered the daemon."""

    def __init__(self, seed: int, directory: Path) -> None:
        chance = random.Random(f"machine {seed}")
        self.machine = Machine(chance)
        self.disk = Disk()
        self.faults: list[Fault] = []
        self.agent: tuple[str, Resource, Sequence[Value]] | None = None
        self.directory = directory
        self.policy = policies.first(chance)
        for name in APPLICATIONS:
            if chance.random() < 0.7:
                self.machine.add_app(name, chance)
        self.daemon = Daemon(
            self.machine,
            directory,
            policies.loaded(self.policy, directory),
            lambda what: self.watch.count(what),
            lambda: self.troubled,
        )
        self.watch = Watch(self)
        self.daemon.rival = self.policy.rival
        self.calm_s = self.settled_s = 0.0
        self._changed_s = -1000.0
        self._hindered_s = -1000.0
        self._agent_seed = 0

    # --- What steps do

    def start(self) -> None:
        """Start the daemon. Where a kill or a refusal of the kernel keeps it from starting, it is
        started again, as systemd would."""
        self.watch.overwrites.clear()
        self.changed()
        for attempt in range(3):
            try:
                self.act(self.daemon.start)
            except (OSError, CannotStartError):
                check(self.faults or self.disk.full, "the start raised without a cause")
                self.kill()
            if self.daemon.alive:
                break
            if attempt == 1:
                self.mend()
        check(self.daemon.alive, "it does not start")
        for pod in self.machine.pods.values():
            self.tell(pod)

    def act(self, work: Callable[[], object]) -> None:
        """The daemon does something; it may be killed in the middle of it."""
        self.watch.begin()
        try:
            with self.disk.in_place():
                work()
        except KilledError:
            self.watch.count("killed at a write")
            self.daemon.die()
            self._defuse()
        finally:
            self.watch.end()

    @contextmanager
    def hand(self) -> Iterator[None]:
        """Somebody else acts in the middle of what the daemon does."""
        self.watch.pause(True)
        try:
            yield
        finally:
            self.watch.pause(False)

    def second(self) -> None:
        if self.agent is not None:
            cgroup, resource, values = self.agent
            self._agent_seed += 1
            if self.machine.poke(cgroup, resource, values[self._agent_seed % len(values)]):
                self.watch.count("poked by an agent")
        hindered = bool(self.faults) or self.disk.full
        now = self.machine.real.monotonic()
        if hindered or not self.daemon.alive:
            self._hindered_s = now
        self.act(self.daemon.second)
        now = self.machine.real.monotonic()
        self.calm_s = now - self._hindered_s
        self.settled_s = min(self.calm_s, now - self._changed_s)
        self.faults = [f for f in self.faults if f.times is None or f.hits < f.times]

    def changed(self) -> None:
        """What best effort is promised is divided anew."""
        self._changed_s = self.machine.real.monotonic()

    def suspend(self, seconds: float) -> None:
        """The machine sleeps. What has just happened has just happened all the same."""
        self.machine.real.suspend(seconds)
        self._changed_s += seconds
        self._hindered_s += seconds
        for path in self.machine.poked_s:
            self.machine.poked_s[path] += seconds

    def take(self, policy: policies.Policy) -> None:
        self.policy, self.daemon.rival = policy, policy.rival
        loaded = policies.loaded(policy, self.directory)
        self.changed()
        if self.daemon.alive:
            self.act(lambda: self.daemon.take(loaded))
        else:
            self.daemon.loaded = loaded

    def tell(self, pod: Pod) -> None:
        """The runtime tells the daemon of a pod."""
        if self.daemon.alive:
            self.act(lambda: self.daemon.parts.reported["nri"].upsert(pod.facts))

    def untell(self, pod: Pod) -> None:
        if self.daemon.alive:
            self.act(lambda: self.daemon.parts.reported["nri"].remove_pod(pod.uid))

    def mend(self) -> None:
        for fault in self.faults:
            self.watch.count("faults that struck", int(bool(fault.hits)))
        self.machine.real.faults.clear()
        self.faults.clear()
        self.disk.full = False

    def bomb(self, op: Op, after: int, disk_after: int | None) -> None:
        def kill() -> None:
            raise KilledError

        self.machine.real.faults.before("*", kill, op=op, after=after)
        self.disk.bomb = disk_after

    def _defuse(self) -> None:
        self.disk.bomb = None
        faults = self.machine.real.faults
        faults.active = [fault for fault in faults.active if fault in self.faults]

    def kill(self) -> None:
        """Between two writes, if it still lives."""
        self._defuse()
        if self.daemon.alive:
            self.daemon.die()
            self.watch.count("killed")

    def owned(self) -> list[tuple[str, Resource]]:
        if not self.daemon.alive:
            return []
        return [(each.cgroup, each.resource) for each in self.daemon.parts.actuator.owned()]

    def restore_offline(self, *, killed_after: int | None = None, op: Op = "write") -> None:
        if killed_after is not None:
            self.bomb(op, killed_after, None)
            self.watch.begin()
            try:
                self.daemon.restore_offline()
            except KilledError:
                self.watch.count("killed in a restore")
            self._defuse()
            self.watch.end()
        self.watch.begin()
        report = self.daemon.restore_offline()
        self.watch.end()
        self._check_report(report.items)
        check(report.ok, f"not restored: {report.items}")
        self.compare()

    def restore_by_daemon(self) -> None:
        self.watch.begin()
        report = self.daemon.engine.restore(dry_run=False)
        self.watch.end()
        self.daemon.restored = True
        self._check_report(report.items)
        check(report.ok, f"not restored: {report.items}")
        self.compare()

    def _check_report(self, items: Sequence[object]) -> None:
        self.watch.count("restores")
        for item in items:
            status = item.status  # type: ignore[attr-defined]
            self.watch.count(f"restore {status}")
            if status is Status.FOREIGN:
                path = item.path  # type: ignore[attr-defined]
                check(path in self.machine.poked_s, f"{path}: said to be somebody else's: {item}")

    def compare(self) -> None:
        self.watch.compare(restored=True)
        compare_network(self)

    def check_silent(self, written_before: int, when: str) -> None:
        written = self.watch.counts.get("writes", 0) - written_before
        check(not written, f"{written} writes {when}")

    def settle(self) -> None:
        """Nothing happens any more: then nothing is written, and who went is forgotten."""
        self.mend()
        self.agent = None
        if not self.daemon.alive:
            return
        moved = (each for here, _ in self.machine.moved_apps.values() for each in here)
        for process in (*self.machine.processes(), *moved):
            process.stuck = False
            self.machine.real.set_demand(process, 0.0)
        for resource in ("cpu", "memory"):
            self.machine.real.stall(f"/proc/pressure/{resource}")
        for _ in range(3):
            self.machine.advance(QUIET_S)
            self.second()
        for _ in range(15):
            self.second()
        self.watch.after_step()
        written = list(self.watch.last_writes)
        self.watch.last_writes.clear()
        before = self.watch.counts.get("writes", 0)
        for _ in range(12):
            self.second()
        if self.watch.counts.get("writes", 0) != before:
            check(False, f"written although nothing happens: {list(self.watch.last_writes)}")
        del written
        check_divided(self)
        left = list(objects_of_gone(self))
        check(not left, "kept of pods that are gone: " + "; ".join(left))
        self.watch.count("settled")

    # --- All of it

    def play(self, steps: Sequence[Step]) -> None:
        """Raises BrokenError, and whatever the daemon raises."""
        self.start()
        for step in steps:
            self.watch.count(f"step {step.kind}")
            self.watch.trace(f"=== {self.machine.real.monotonic():.0f} {step}")
            KINDS[step.kind][0](self, random.Random(step.seed))
            for _ in range(1 + step.seed % 2):
                self.second()
            self.watch.after_step()
        self.mend()
        self.agent = None
        if steps and steps[-1].seed % 2 and self.daemon.alive:
            self.restore_by_daemon()
            self.act(self.daemon.stop)
        else:
            if self.daemon.alive:
                self.act(self.daemon.stop)
            self.restore_offline()

    def check_replay(self) -> None:
        """What the daemons decided is decided again from their files. Where the disk was full, or
        the clock jumped by more than is kept, samples are missing."""
        found = replayed(self.directory)
        self.watch.count("decided again", found.decisions)
        check(not found.unexplained, f"decided otherwise in replay: {found.differences[:5]}")
        check(not found.unplayed, f"not decided in replay: {found.unplayed}")
        # Minutes that a full disk did not take are lost, and said.
        gaps = [gap for gap in found.gaps if not gap.startswith("nothing is recorded from ")]
        check(not gaps, f"missing in the inputs log: {gaps}")

    def close(self) -> None:
        if self.daemon.alive:
            self.daemon.die()

    @property
    def troubled(self) -> bool:
        """Whether the kernel, the disk or a kill has lately hindered the daemon."""
        return self.calm_s < 5 or bool(self.faults) or self.disk.full

    def trouble_on(self, resource: Resource) -> bool:
        return self.troubled


def quiet() -> None:
    """Thousands of histories log a lot."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def play(
    seed: int, steps: Sequence[Step] | None = None, *, trace: Callable[[str], None] | None = None
) -> dict[str, int]:
    """Play the history of ``seed``, or ``steps`` on its machine. Returns what happened how often;
    raises what was found. ``trace`` is told of each step, write and outcome."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None  # its writes are synced often
    with tempfile.TemporaryDirectory(prefix="koordlet-history-", dir=place) as directory:
        history = History(seed, Path(directory))
        history.watch.trace = trace or history.watch.trace
        history.daemon.is_replayed = seed % REPLAYED_EVERY == 0
        try:
            history.play(generate(seed) if steps is None else steps)
            if history.daemon.is_replayed:
                history.check_replay()
        finally:
            history.close()
    return history.watch.counts
