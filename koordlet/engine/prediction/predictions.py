"""The models of this node: learning, forgetting, and what they say at present."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from koordlet.decision.snapshot import Application, Fault, Node, Pod
from koordlet.engine.prediction.course import Course
from koordlet.engine.prediction.figures import NO_ROUND, Figures, Held, samples
from koordlet.engine.prediction.files import Loaded
from koordlet.engine.prediction.keeper import Keeper
from koordlet.engine.prediction.kept import Kept, Models, has_room
from koordlet.engine.prediction.targets import ITEM_TARGETS, NODE_TARGET, Target
from koordlet.engine.prediction.trainer import AT_ONCE, Round, rule_of
from koordlet.prediction.backtest import STEP_S
from koordlet.prediction.part import PredictionOptions
from koordlet.tsdb.store import Store

UPKEEP_S = 60
_LATE_MS = 180_000
"""A round that is older is dropped: the store would have to go to disk."""
_STALE_ROUNDS, _STALE_S = 5, 300.0
"""Figures go out of date after so many intervals without a round, at the earliest so late."""
_LONGEST_SLACK_S = 0.25
"""By which a tick may come before a round is due, so that jitter does not cost a whole tick."""
_PUBLISHED_AT_ONCE = 4 * AT_ONCE


class Predictions:
    """``models``: by uid. ``figures``: of the last round that ended; ``current`` knows whether they
    still count. ``round_s``: CPU time that it took, ``every_s``: time from the round before, None
    before the second one. ``held``: why no round could be made since.

    Nothing is learned before ``took`` has been told what an earlier run knew.
    """

    def __init__(self, store: Store, options: PredictionOptions, directory: str) -> None:
        """``directory``: of the files."""
        self._store = store
        self.options = options
        self.models: Models = {}
        self.figures = Figures()
        self.round_s = 0.0
        self.every_s: float | None = None
        self.held: Held | None = None
        self._keeper = Keeper(self.models, directory)
        self._learned_s: float | None = None
        self._course: Course | None = None
        self._time_ms = 0
        self._due_s = 0.0
        self._step = 0

    @property
    def is_waiting(self) -> bool:
        """There may be files of an earlier run that have not been read."""
        return self.options.enable and self._keeper.is_waiting

    @property
    def refused_count(self) -> int:
        """Damaged files since the start."""
        return self._keeper.refused_count

    def adapt(self, options: PredictionOptions) -> None:
        """Take up changed options. Switched off, it forgets what is not on disk."""
        if not options.enable:
            for uid in tuple(self.models):
                self._forget(uid)
            self.figures, self._course = Figures(), None
            self._learned_s = self.every_s = self.held = None
            self._keeper.begin_anew()
        self.options = options

    # Learning

    def turn(
        self,
        time_ms: int,
        now_s: float,
        tick_s: float,
        node: Node,
        pods: tuple[Pod, ...],
        applications: tuple[Application, ...],
    ) -> bool:
        """At each tick: begins a round when it is due, or goes on with one; whether one has ended.
        ``time_ms``: of the newest row of the store, ``now_s`` monotonic, ``tick_s``: until the next
        tick. What is raised ends the round too."""
        if not self.options.enable or not self._keeper.has_tried:
            return False
        self._time_ms = time_ms
        course, self._course = self._course, None
        if course is None or abs(time_ms - course.time_ms) > _LATE_MS:
            if now_s + min(tick_s / 4, _LONGEST_SLACK_S) < self._due_s:
                return False
            interval_s = self.options.training_interval_s
            self._due_s += interval_s
            if self._due_s <= now_s:
                self._due_s = now_s + interval_s
            begun = Round(
                self._store, self.models, self.options, time_ms, now_s, node, pods, applications
            )
            count = begun.step_count + 2 + len(begun.targets) // _PUBLISHED_AT_ONCE
            course = Course(self._steps(begun, now_s), count, time_ms, now_s, interval_s)
        if not course.go_on(now_s + tick_s):
            self._course = course
            return False
        self.round_s, self.held = course.spent_s, None
        return True

    def _steps(self, begun: Round, now_s: float) -> Iterator[None]:
        yield from begun.steps()
        assert begun.figures is not None
        self.figures = begun.figures
        self._note_round(now_s)
        yield
        found = list(samples(self.figures))
        ids = [self._store.series(m.kind, _pairs(m.labels, labels)) for m, labels, _ in found]
        self._append(ids, [value for _, _, value in found])
        self._publish((NODE_TARGET, *ITEM_TARGETS))
        # There are hundreds of workloads, so their peaks are stored once in five minutes, and at
        # once when they are new.
        step = begun.end_ms // 1000 // STEP_S
        if step == self._step:
            due = [each for each in begun.targets if self._is_new(each.uid)]
        else:
            due = list(begun.targets)
        self._step = step
        for first in range(0, len(due), _PUBLISHED_AT_ONCE):
            yield
            self._publish(due[first : first + _PUBLISHED_AT_ONCE])

    def _note_round(self, now_s: float) -> None:
        """``now_s``: when it was begun, monotonic."""
        if self._learned_s is not None:
            self.every_s = now_s - self._learned_s
            if self.is_stale(now_s):  # nobody could have a sample in that time, so it ages none
                for model in self.models.values():
                    model.fed_s = min(model.fed_s + self.every_s, now_s)
        self._learned_s = now_s

    def _is_new(self, uid: str) -> bool:
        model = self.models.get(uid)
        return model is not None and not model.series

    def _publish(self, some: Iterable[Target]) -> None:
        """Their peaks, into the newest row of the store."""
        ids: list[int] = []
        values: list[float] = []
        for target in some:
            model = self.models.get(target.uid)
            if model is not None and model.peak is not None:
                if not model.series:
                    model.series = tuple(
                        self._store.series(metric.kind, _pairs(metric.labels, target.labels))
                        for metric in target.peaks
                    )
                ids += model.series
                values += (model.peak.cpu_milli / 1000, float(model.peak.memory_bytes))
        self._append(ids, values)

    def _append(self, ids: list[int], values: list[float]) -> None:
        if ids:
            self._store.append(self._time_ms, ids, values)

    # Keeping: on the loop, but for what is returned, which is for a worker thread

    def load(self, time_s: float) -> Callable[[], Loaded]:
        """``time_s``: unix time."""
        return self._keeper.load(self.options, time_s)

    def took(self, loaded: Loaded, time_s: float, now_s: float) -> None:
        """What ``load`` found. ``time_s``: unix time, ``now_s`` monotonic."""
        self._keeper.took(loaded)
        rule = rule_of(self.options)
        for uid, subject in loaded.subjects.items():
            model = self.models.get(uid)
            if model is None and has_room(self.models):
                fed_s = now_s - max(time_s - subject.updated_s, 0.0)
                self.models[uid] = Kept(subject, fed_s, peak=subject.peak(rule))
            elif model is not None and subject.since_s < model.subject.since_s:
                # Its file could not be read at first. It has seen more than what is learned since.
                model.subject, model.peak = subject, subject.peak(rule)

    def upkeep(self, now_s: float) -> Callable[[], None]:
        """Forgets models that had no sample for long before the last round that ended: while none
        ends, none can have one. Chooses those to be saved. ``now_s``: monotonic. What is returned
        raises as ``Keeper.upkeep`` says."""
        if self._learned_s is None:
            return _nothing
        expired_s = self._learned_s - self.options.model_expiration_s
        gone = [uid for uid, model in self.models.items() if model.fed_s < expired_s]
        for uid in gone:
            self._forget(uid)
        return self._keeper.upkeep(gone, self.options, now_s)

    def close(self) -> None:
        """Saves every model. Raises as ``Keeper.close`` says."""
        if self._learned_s is not None:
            self._keeper.close()

    def _forget(self, uid: str) -> None:
        for series in self.models.pop(uid).series:
            self._store.release(series)

    # What is shown. ``now_s``: monotonic

    def age_s(self, now_s: float) -> float | None:
        """Time since the last round that ended was begun; None before the first."""
        return None if self._learned_s is None else now_s - self._learned_s

    def is_stale(self, now_s: float) -> bool:
        """What the last round found does not count any more."""
        age_s = self.age_s(now_s)
        longest_s = max(_STALE_ROUNDS * self.options.training_interval_s, _STALE_S)
        return age_s is not None and age_s > longest_s

    def current(self, now_s: float) -> Figures:
        """``figures`` while they count, after that the reason alone."""
        age_s = self.age_s(now_s)
        because = f" ({self.held})" if self.held is not None else ""
        if age_s is None:
            return Figures(why=NO_ROUND + because)
        if self.is_stale(now_s):
            why = f"no round has ended for {age_s / 60:.0f} min{because}"
            return Figures(self.figures.time_s, None, why)
        return self.figures

    def faults(self) -> tuple[Fault, ...]:
        """Files that were damaged, or cannot be read."""
        return tuple(self._keeper.faults())


def _pairs(names: tuple[str, ...], values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(names, values, strict=True))


def _nothing() -> None:
    """No work."""
