"""What holds after every step of a history, whatever happened (invariants of docs/design.md)."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from koordlet_fakefs import Process

from koordlet.actuator.evict.executor import EvictResult
from koordlet.actuator.evict.journal import Begun
from koordlet.actuator.files import LONGEST_RETRY_S, State
from koordlet.actuator.merge import Key
from koordlet.actuator.outcome import Outcome
from koordlet.actuator.rewrites import SETTLES_S
from koordlet.decision.plan import Result
from koordlet.decision.record import Kind
from koordlet.decision.resctrl import control_group
from koordlet.decision.resource import Resource
from koordlet.engine.traffic import PART as TRAFFIC
from koordlet.kernel.cgroup.kubepods import is_in_pod
from koordlet.protocol.cpuset import parse_cpulist
from tests.histories import policies
from tests.histories.broken import check
from tests.histories.budget import Budget
from tests.histories.floors import check_floors
from tests.histories.machine import APPLICATIONS, settings_of, unhindered
from tests.histories.network import check_network, is_somebody_elses

if TYPE_CHECKING:
    from tests.histories.history import History

OVERWRITES = 7
"""Of a second writer's values in one file within a minute: at once, and then after 2, 4, 8, 16 and
32 s."""
_DEEDS = frozenset({"memory.reclaim", "cgroup.kill", "cgroup.procs", "tasks", "freezer.state"})
"""Written to do something, not to set it. (A frozen application is a setting too: the look at the
end sees it.)"""


class Watch:
    """Looks at a history from beside it. ``counts``: how often what happened, so that a run can
    tell that it was about something."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.counts: dict[str, int] = {}
        self.overwrites: dict[str, deque[float]] = {}
        self._budget = Budget()
        self.evicting: set[str] = set()
        self.inexact = False
        self.coincided: set[str] = set()
        """Files in which somebody else wrote what koordlet wanted: then nobody can tell whose value
        it is."""
        self._written_before: dict[str, dict[str, set[bytes]]] = {}
        """Cgroup -> ``Machine.wrote`` of its files, before it got another name."""
        self._hindered: dict[tuple[str, str], float] = {}
        """Path and text of what was refused -> when, by the clock of the daemon."""
        self._seen = 0
        self._pokes: dict[str, float] = {}
        self._gone: set[tuple[str, Resource]] = set()
        self._gone_before: set[tuple[str, Resource]] = set()
        self.trace: Callable[[str], None] = lambda text: None
        self._acting = False
        self.last_writes: deque[tuple[str, bytes]] = deque(maxlen=20)
        history.machine.real.machine.on_process.append(self._process)
        self._died: list[Process] = []

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def renamed(self, cgroup: str, name: str) -> None:
        """What is known of its files is of those by the new name. What koordlet has written there
        is in the journal by the old one, until it sees that."""
        machine = self.history.machine
        tables: tuple[dict[str, Any], ...]
        tables = (machine.poked_s, self.overwrites, self._pokes)
        for table in tables:
            for path in _files_of(cgroup, table):
                table[path.replace(f"/{cgroup}/", f"/{name}/")] = table.pop(path)
        for path in _files_of(cgroup, self.coincided):
            self.coincided.add(path.replace(f"/{cgroup}/", f"/{name}/"))
        written = {path: machine.wrote.pop(path) for path in _files_of(cgroup, machine.wrote)}
        self._written_before.setdefault(cgroup, {}).update(written)
        machine.wrote.update(self._written_before.pop(name, {}))

    def gone(self, cgroup: str) -> None:
        """Its files are no more, whatever comes by the same names."""
        machine = self.history.machine
        tables: tuple[dict[str, Any], ...]
        tables = (machine.poked_s, machine.wrote, self.overwrites, self._pokes)
        for table in tables:
            for path in _files_of(cgroup, table):
                del table[path]
        self.coincided -= set(_files_of(cgroup, self.coincided))

    # --- While the daemon acts

    def begin(self) -> None:
        self._acting = True

    def end(self) -> None:
        self._acting = False
        self._took_writes()
        machine, daemon = self.history.machine, self.history.daemon
        if machine.poked_s and daemon.alive:
            self._see_coincidences()

    def _see_coincidences(self) -> None:
        """A strategy that finds a value near what it wants keeps it: then it is koordlet's too."""
        machine = self.history.machine
        for owned in self.history.daemon.parts.actuator.owned():
            if owned.path in machine.poked_s and owned.path not in self.coincided:
                with suppress(OSError), unhindered(machine.real), unhindered(machine.twin):
                    key = owned.cgroup, owned.resource
                    found = machine.knobs.read(*key)
                    if owned.value == found and machine.twin_knobs.read(*key) == found:
                        self.coincided.add(owned.path)

    def pause(self, paused: bool) -> None:
        """Somebody else acts in between."""
        self._acting = not paused

    def _process(self, process: Process, came: bool) -> None:
        if self._acting and not came:
            self._died.append(process)

    def _took_writes(self) -> None:
        """Who wrote over whom."""
        machine = self.history.machine
        now = machine.real.monotonic()
        while machine.real.written:
            path, data = machine.real.written.popleft()
            self.count("writes")
            self.last_writes.append((path, data))
            self.trace(f"  {now:.0f} write {path} {data!r}")
            machine.wrote.setdefault(path, set()).update(data.split()[:1])
            poked = machine.poked_s.get(path)
            if poked is not None and self._pokes.get(path) != poked:
                self._pokes[path] = poked
                if self._is_set_up(path):
                    self.count("overwrites of who sets up")
                    continue
                times = self.overwrites.setdefault(path, deque())
                times.append(now)
                self.count("overwrites")
                while times and times[0] < now - 60:
                    times.popleft()
                files = 2 if path.endswith("/cpu.max") else 1  # two values in one
                check(
                    len(times) <= OVERWRITES * files,
                    f"{path}: a second writer was fought {len(times)} times in a minute",
                )

    def _is_set_up(self, path: str) -> bool:
        """Whether whoever made a pod's cgroup may still be at work there: no second writer then."""
        entries = self.history.daemon.parts.actuator._files.entries.values()
        original = next((e.original for e in entries if e.original.path == path), None)
        if original is None or not is_in_pod(original.cgroup):
            return False
        age_s = self.history.machine.real.time() - original.since
        return 0 <= age_s <= SETTLES_S + 1  # a turn later

    # --- After each step

    def after_step(self) -> None:
        daemon = self.history.daemon
        self._outcomes()
        self._evicted()
        if daemon.alive:
            self._alive()
        with unhindered(self.history.machine.real):
            self._journaled()
            check_floors(self.history)
            check_network(self.history)
            if daemon.alive and not daemon.parts.observing and not self.history.troubled:
                daemon.wants.check(self._need_not_hold)

    def _need_not_hold(self, file: tuple[str, Resource], path: str) -> bool:
        """What was refused is told, and waits; nor is a second writer fought. Where a cgroup has
        gone, another one of its name has its turn later. ``cpu.idle`` locks the shares. A monitor
        group goes with the control group around it."""
        machine = self.history.machine
        if file in self._gone and file not in self._gone_before:
            return True
        control = f"/sys/fs/resctrl/{control_group(file[0])}"
        if file[1] is Resource.RESCTRL_MONITOR_GROUP and not machine.real.exists(control):
            return True
        state = self.history.daemon.parts.actuator._files.states.get(Key(*file))
        if state is not None and (state.refusal is not None or self._waits(state, path)):
            return True
        idle = file[0], Resource.CPU_IDLE
        return file[1] is Resource.CPU_SHARES and machine.knobs.read(*idle) == 1

    def _waits(self, state: State, path: str) -> bool:
        return state.conflict is not None and path in self.history.machine.poked_s

    def _outcomes(self) -> None:
        daemon = self.history.daemon
        gone = [each for each, _ in daemon.outcomes if each.result is Result.GONE]
        self._gone_before, self._gone = self._gone, {(e.cgroup, e.resource) for e in gone}
        for outcome, was_troubled in daemon.outcomes:
            kind = "traffic" if outcome.resource.startswith("net.") else "outcome"
            self.count(f"{kind} {outcome.result}")
            self.trace(
                f"  {outcome.result}: {outcome.owner} {outcome.cgroup} {outcome.resource} wanted "
                f"{outcome.wanted!r} found {outcome.found!r} written {outcome.written!r} "
                f"{outcome.text} | {outcome.why.text}"
            )
            if outcome.resource is Resource.RESCTRL_MONITOR and outcome.result is Result.WRITTEN:
                self.count("counted apart")
            check(outcome.owner, f"{outcome.path}: {outcome.result} without an owner")
            check(outcome.why.rule and outcome.why.text, f"{outcome.path}: without a reason")
            if outcome.result is Result.IN_FORCE and outcome.path in self.history.machine.poked_s:
                self.coincided.add(outcome.path)
            if outcome.result is Result.REFUSED:
                same = outcome.path, outcome.text
                if was_troubled:
                    self._hindered[same] = self.history.machine.real.monotonic()
                check(
                    self._waits_since_then(same)
                    or _lacks_an_rmid(outcome)
                    or self._was_poked_near(outcome.cgroup)
                    or is_somebody_elses(self.history, outcome),
                    f"refused without a cause: {outcome.cgroup} {outcome.resource} wanted "
                    f"{outcome.wanted!r} found {outcome.found!r}: {outcome.text}",
                )
        daemon.outcomes.clear()

    def _waits_since_then(self, same: tuple[str, str]) -> bool:
        """Whether something hindered it when it was tried: what waits for another try may be told
        again."""
        now = self.history.machine.real.monotonic()
        return now - self._hindered.get(same, -math.inf) <= LONGEST_RETRY_S

    def _was_poked_near(self, cgroup: str) -> bool:
        """Somebody else has changed this cgroup, one above it or one below it: what the kernel
        refuses then is no mistake of ours."""
        parts = [part for part in cgroup.split("/") if part]
        return not parts or any(f"/{parts[0]}/" in path for path in self.history.machine.poked_s)

    def _evicted(self) -> None:
        history = self.history
        for record in history.daemon.records:
            self.trace(f"  {record.kind} {record.owner} {record.cgroup} {record.why.text[:200]}")
            check(
                not record.why.rule.endswith(".failed") or "failed-before" in record.why.rule,
                f"a strategy raised: {record.owner}: {record.why.text}",
            )
            if record.kind is Kind.EVICTION:
                self.count(f"eviction {record.result}")
        history.daemon.records.clear()
        given_up = set()
        for outcome in history.daemon.evictions:
            cgroup = outcome.begun.cgroup
            if outcome.result is EvictResult.BEGUN:
                self._begun(outcome.begun)
                given_up.discard(cgroup)
            elif outcome.result is EvictResult.FAILED:
                given_up.add(cgroup)
                self._budget.failed(outcome.begun)
        history.daemon.evictions.clear()
        for process in self._died:
            self._may_have_died(process)
        self._died.clear()
        self.evicting -= given_up

    def _begun(self, begun: Begun) -> None:
        history = self.history
        self.evicting.add(begun.cgroup)
        full = history.disk.full
        self._budget.begun(begun, history.daemon.starts, is_disk_full=full)
        self._may_be_evicted(begun.cgroup, begun.feature)

    def _may_be_evicted(self, cgroup: str, feature: str) -> None:
        history = self.history
        if cgroup in APPLICATIONS:
            check(APPLICATIONS[cgroup] == "BE", f"application {cgroup} was to be evicted")
            asked = history.policy.evict == "stop" or history.troubled
            check(asked, f"application {cgroup} was stopped: evict = {history.policy.evict}")
            return
        pods = {pod.groups.pod: pod for pod in history.machine.pods.values()}
        pod = pods.get(cgroup) or history.machine.gone_pods.get(cgroup)
        check(pod, f"{cgroup} was to be evicted, which is no pod and no application")
        assert pod is not None
        check(pod.qos not in ("LSE", "LSR", "SYSTEM"), f"{cgroup} ({pod.qos}) was evicted")
        about = f"{cgroup} ({pod.qos}, {pod.facts.priority}) was evicted by {feature}"
        told = f"{pod.facts.labels} {pod.facts.annotations}"
        check(pod.lets(feature), f"{about} although it says {told}")
        if not feature.startswith("BE"):
            most = min(policies.highest_priority(history.policy, feature), 7999)
            check(pod.priority <= most or history.troubled, f"{about}, which may go up to {most}")

    def _may_have_died(self, process: Process) -> None:
        machine = self.history.machine
        for pod in machine.pods.values():
            if process in pod.processes:
                check(
                    pod.groups.pod in self.evicting or machine.exceeds_its_limit(pod),
                    f"a process of pod {pod.groups.pod} ({pod.qos}) died by koordlet's hand",
                )
                return
        for name, processes in machine.apps.items():
            if process in processes:
                check(name in self.evicting, f"a process of {name} died by koordlet's hand")

    def _alive(self) -> None:
        daemon = self.history.daemon
        problem = daemon.parts.problems.get(TRAFFIC, "")
        check(not re.match(r"\w+(Error|Exception): ", problem), f"{TRAFFIC} raised {problem}")
        now = daemon.host.monotonic()
        check(daemon.engine.last_tick == now, f"the last tick was at {daemon.engine.last_tick}")
        if not self.history.disk.full and not daemon.parts.observing:
            self._budget.ticked(daemon.starts)
        for owned in daemon.parts.actuator.owned():
            check(owned.owner, f"{owned.path}: without an owner")
        self.count("conflicts", len(daemon.parts.actuator.conflicts()))

    def _journaled(self) -> None:
        """Whatever differs from the twin is in the journal, with what the twin holds as its
        original, and the journal is on the disk."""
        history = self.history
        contents = history.daemon.journal_on_disk()
        check(not contents.damage, f"a kill or a full disk passes for damage: {contents.damage}")
        self.inexact = self.inexact or not contents.exact
        known: set[str | tuple[str, int, str]] = set()
        for entry in contents.entries.values():
            original = entry.original
            known |= {original.path, _by_inode(original.path, original.inode)}
            if entry.ours:
                check(entry.owner, f"{original.path}: journaled without an owner")
        machine = history.machine
        for path in tuple(machine.wrote):
            if path.rpartition("/")[2] in _DEEDS or (
                path.startswith("/proc/") and "/sys/" not in path
            ):
                continue
            try:
                real, twin = machine.real.look(path), machine.twin.look(path)
            except OSError:
                del machine.wrote[path]  # it went
                continue
            if real != twin and not self._is_excused(path, real, twin):
                check(
                    path in known or self._known_by_an_old_name(path, known),
                    f"{path} holds {real!r}, without koordlet {twin!r}, and the journal does not "
                    "know it",
                )

    def _known_by_an_old_name(self, path: str, known: Container[object]) -> bool:
        """A full disk keeps what is known of a renamed cgroup by its old name."""
        if not path.startswith("/sys/fs/cgroup/"):
            return False
        cgroup = self.history.machine.real.group(path.rpartition("/")[0])
        return _by_inode(path, cgroup.ino) in known

    # --- At the end

    def compare(self, *, restored: bool) -> None:
        """Everything as on the twin. ``restored``: of what restore could not know, too."""
        machine = self.history.machine
        real, twin = settings_of(machine.real), settings_of(machine.twin)
        wrong = []
        for path in sorted(real.keys() | twin.keys()):
            here, there = real.get(path), twin.get(path)
            if here != there and not self._is_excused(path, here, there):
                wrong.append(f"{path}: {here!r}, without koordlet {there!r}")
        check(not wrong, "not as before:\n  " + "\n  ".join(wrong))
        for process, before in machine.alive_pairs():
            score, was = process.oom_score_adj, before.oom_score_adj
            check(score == was, f"process {process.pid}: oom_score_adj {score}, was {was}")
            cookies = [thread.cookie for thread in process.threads.values()]
            check(not any(cookies), f"process {process.pid}: cookies {cookies}")
        daemon = self.history.daemon
        journal = daemon.parts.journal if daemon.alive else daemon.journal_on_disk()
        left = journal.entries  # a full disk owes a living daemon its releases
        check(not left, f"still in the journal: {[tuple(key) for key in left]}")

    def _is_excused(self, path: str, real: str | None, twin: str | None) -> bool:
        """Differences that are documented."""
        if self.inexact and path in self.history.machine.poked_s:
            return True  # a full disk: then every value counts as ours
        if path in self.coincided:
            return True
        if path.endswith("cpuset.cpus") and self.history.machine.is_below_poked(path):
            return True  # a copy of ours below a list that is somebody else's now
        if (
            path.endswith("cpuset.cpus")
            and real is not None
            and twin is not None
            and not twin.strip()
        ):
            # v2 takes no empty list with tasks in the group; that of all CPUs does the same.
            online = self.history.machine.real.options.topology.online
            return parse_cpulist(real.strip()) == online
        return False


def _lacks_an_rmid(outcome: Outcome) -> bool:
    """A resctrl group may have to wait for one, a control group as well."""
    return "in limbo" in outcome.text or "Out of RMIDs" in outcome.text


def _by_inode(path: str, inode: int) -> tuple[str, int, str]:
    """A file of a v1 cgroup, whatever name that has now: hierarchy, inode, name of the file."""
    parts = path.split("/")
    return "/".join(parts[:5]), inode, parts[-1]


def _files_of(cgroup: str, paths: Iterable[str]) -> list[str]:
    """Of a cgroup at the top of its hierarchies."""
    return [path for path in paths if f"/{cgroup}/" in path and path.startswith("/sys/fs/cgroup/")]


def objects_of_gone(history: History) -> Iterator[str]:
    """State that still speaks of pods that are gone, as the names of where it is."""
    gone = history.machine.gone | {uid.replace("-", "_") for uid in history.machine.gone}
    engine = history.daemon.engine
    parts = engine.parts
    places: dict[str, object] = {
        f"memory of {name}": runs.memory for name, runs in engine.runs.items()
    }
    actuator = parts.actuator
    places |= {
        "actuator states": list(actuator._files.states),
        "actuator told": list(actuator._told),
        "actuator in order": list(actuator._in_order),
        "actuator targets": list(actuator._votes.targets),
        "actuator claims": [list(each) for each in actuator._votes._wanted.values()],
        "actuator plans": list(actuator._votes._plans.values()),
        "alarms": list(engine.alarms_heard),
        "alarms armed": [each.source for each in parts.alarms.describe()],
        "evictor failed": list(engine.evictions._evictor._failed),
        "evictor cases": list(engine.evictions._evictor._cases),
        "journal": [] if parts.observing else list(parts.journal.entries),
        "problems": list(parts.problems),
        "pods": [pod.uid for pod in parts.state.pods()],
    }
    for place, what in places.items():
        text = repr(what)
        for uid in gone:
            if uid in text:
                yield f"{place}: {uid}"
                break
