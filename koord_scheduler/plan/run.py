"""The scheduler's loop on a clock that somebody else moves: the queue with its back-off and hints,
and every decision of it. ``replay`` and ``bench`` run it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.plan import gangs
from koord_scheduler.plan.course import Decision, try_unit
from koord_scheduler.plan.hints import Event
from koord_scheduler.plan.queue import Queue, Unit
from koord_scheduler.plan.state import State


class Run:
    """``on_decision`` hears of each attempt's outcome."""

    def __init__(
        self,
        state: State,
        on_decision: Callable[[Decision], None] = lambda decision: None,
        *,
        preempts: bool = True,
    ) -> None:
        self.state = state
        self.queue = Queue()
        self.attempts = 0
        self._on_decision, self._preempts = on_decision, preempts

    def changed(self, pod: Pod, now_s: float) -> None:
        """A pod came, or is another now; also one that is gone."""
        book = self.state.parts.gangs
        if book is not None and pod.gang:
            self._group(book.group_of(pod.gang), now_s)
        elif pod.key in self.state.waiting and not pod.terminating:
            gate = f"waits for scheduling gates: {', '.join(pod.gates)}" if pod.gates else ""
            unit = Unit(pod.key, pod.cls.priority, pod.created_s, (pod.key,), gate)
            self.queue.put(unit, now_s)
        else:
            self.queue.remove(pod.key)

    def _group(self, group: str, now_s: float) -> None:
        book = self.state.parts.gangs
        assert book is not None
        name = gangs.UNIT + group
        unit = gangs.unit(book, group, now_s)
        if unit is None:
            self.queue.remove(name)
            return
        before = self.queue.unit(name)
        self.queue.put(unit, now_s)
        if before is not None and before.pods != unit.pods:
            self.queue.wake(name, now_s)

    def happened(self, event: Event, now_s: float) -> None:
        self.queue.event(event, now_s)

    def step(self, now_s: float, most: int | None = None) -> int:
        """Decides for all whose turn it is, or for ``most`` units; how many."""
        done = 0
        while most is None or done < most:
            unit = self.queue.pop(now_s)
            if unit is None:
                break
            if not done:
                self.state.tick(now_s)
            done += 1
            self._try(unit, now_s)
        return done

    def _try(self, unit: Unit, now_s: float) -> None:
        self.attempts += 1
        if unit.name not in self.state.waiting and not unit.name.startswith(gangs.UNIT):
            self.queue.remove(unit.name)
            return
        made = try_unit(self.state, unit, preempts=self._preempts)
        failed = [each for each in made if not each.node]
        if failed:
            refused_by = frozenset().union(*(each.refused_by for each in failed))
            if any(each.untried for each in failed):
                self.queue.again(unit.name, now_s)
            else:
                self.queue.failed(unit.name, now_s, refused_by)
        else:
            self.queue.remove(unit.name)
        evicted = [key for each in made for key in each.evicted]
        for each in made:
            self._on_decision(each)
        if len(failed) < len(made):
            self.queue.event(Event.POD_PLACED, now_s)
        if evicted:
            self._again(evicted, now_s)

    def _again(self, evicted: Iterable[str], now_s: float) -> None:
        for key in evicted:
            pod = self.state.waiting.get(key)
            if pod is not None:
                self.changed(pod, now_s)
        self.queue.event(Event.POD_GONE, now_s)
