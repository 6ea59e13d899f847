"""The models of this node: learning, keeping, and what they say at present."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from koordlet.decision.snapshot import Application, Fault, Node, Pod
from koordlet.engine.prediction import files
from koordlet.engine.prediction.figures import Figures, samples
from koordlet.engine.prediction.files import Loaded, Refused
from koordlet.engine.prediction.kept import Kept, Models
from koordlet.engine.prediction.targets import ITEM_TARGETS, NODE_TARGET, Target
from koordlet.engine.prediction.trainer import AT_ONCE, Round
from koordlet.prediction.backtest import STEP_S
from koordlet.prediction.checkpoint import decode, encode
from koordlet.prediction.part import PredictionOptions
from koordlet.prediction.subject import Subject
from koordlet.tsdb.store import Store

UPKEEP_S = 60
_LATE_MS = 120_000
"""A round that has stood still for so long is dropped: the store would have to go to disk."""
_PUBLISHED_AT_ONCE = 4 * AT_ONCE
_REFUSED_SHOWN = 8


class Predictions:
    """``models``: by uid. ``figures``: of the last round that ended. ``round_s``: time of the loop
    that it took. ``refused_count``: damaged files since the start.

    Nothing is learned before ``took`` has been told what an earlier run knew.
    """

    def __init__(self, store: Store, options: PredictionOptions, directory: str) -> None:
        """``directory``: of the files."""
        self._store = store
        self.options = options
        self._directory = directory
        self.models: Models = {}
        self.figures = Figures()
        self.round_s = 0.0
        self.refused_count = 0
        self._refused: deque[Refused] = deque(maxlen=_REFUSED_SHOWN)
        self._is_loaded = self._has_learned = False
        self._round: Iterator[None] | None = None
        self._round_ms = self._time_ms = 0
        self._spent_s = 0.0
        self._due_s = 0.0
        self._step = 0

    @property
    def is_waiting(self) -> bool:
        """It has not been told yet what an earlier run knew."""
        return self.options.enable and not self._is_loaded

    def adapt(self, options: PredictionOptions) -> None:
        """Take up changed options. Switched off, it forgets what is not on disk."""
        if not options.enable:
            for uid in tuple(self.models):
                self._forget(uid)
            self.figures, self._round = Figures(), None
            self._is_loaded = self._has_learned = False
        self.options = options

    # Learning, on the loop

    def turn(
        self,
        time_ms: int,
        now_s: float,
        node: Node,
        pods: tuple[Pod, ...],
        applications: tuple[Application, ...],
    ) -> bool:
        """At each tick: begins a round when it is due, or goes on with one; whether one has ended.
        ``time_ms``: of the newest row of the store, ``now_s`` monotonic. What is raised ends the
        round too."""
        if not self.options.enable or not self._is_loaded:
            return False
        self._time_ms = time_ms
        current, self._round = self._round, None
        if current is not None and abs(time_ms - self._round_ms) > _LATE_MS:
            current = None
        if current is None:
            if now_s < self._due_s:
                return False
            following_s = self._due_s + self.options.training_interval_s
            late = following_s <= now_s
            self._due_s = now_s + self.options.training_interval_s if late else following_s
            self._round_ms, self._spent_s = time_ms, 0.0
            begun = Round(
                self._store, self.models, self.options, time_ms, now_s, node, pods, applications
            )
            current = self._steps(begun)
        started = time.thread_time()
        for _ in current:
            self._round = current
            break
        self._spent_s += time.thread_time() - started
        if self._round is not None:
            return False
        self.round_s = self._spent_s
        return True

    def _steps(self, begun: Round) -> Iterator[None]:
        yield from begun.steps()
        assert begun.figures is not None
        self.figures = begun.figures
        self._has_learned = True
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
        options = self.options

        def decoded(data: bytes) -> Subject:
            return decode(data, options.cpu_half_life_s, options.memory_half_life_s, time_s)

        return partial(files.load, self._directory, decoded)

    def took(self, loaded: Loaded, time_s: float, now_s: float) -> None:
        """What ``load`` found. ``time_s``: unix time, ``now_s`` monotonic."""
        for uid, subject in loaded.subjects.items():
            self.models[uid] = Kept(subject, now_s - max(time_s - subject.updated_s, 0.0))
        self._refused.extend(loaded.refused)
        self.refused_count += len(loaded.refused)
        self._is_loaded = True

    def upkeep(self, now_s: float) -> Callable[[], None]:
        """Forgets models that nobody feeds any more, and chooses those to be saved. ``now_s``:
        monotonic. What is returned raises OSError."""
        if not self._has_learned:
            return _nothing
        expired_s = now_s - self.options.model_expiration_s
        gone = [uid for uid, model in self.models.items() if model.fed_s < expired_s]
        for uid in gone:
            self._forget(uid)
        due_s = now_s - self.options.checkpoint_interval_s
        due = [
            (model.saved_s, uid)
            for uid, model in self.models.items()
            if model.saved_s <= due_s and files.can_be_saved(uid)
        ]
        chosen = [uid for _, uid in sorted(due)[: self.options.checkpoint_max_per_step]]
        saved = [self.models[uid] for uid in chosen]
        encoded = list(self._encoded(chosen))
        removed = [uid for uid in gone if files.can_be_saved(uid)]

        def work() -> None:
            files.remove(self._directory, removed)
            files.save(self._directory, encoded)
            for model in saved:
                model.saved_s = now_s

        return work

    def close(self) -> None:
        """Saves every model, not safe from a power cut: that would take seconds. Raises OSError."""
        if self._has_learned:
            known = filter(files.can_be_saved, self.models)
            files.save(self._directory, self._encoded(known), is_durable=False)

    def _encoded(self, uids: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        for uid in uids:
            yield uid, encode(uid, self.models[uid].subject)

    def _forget(self, uid: str) -> None:
        for series in self.models.pop(uid).series:
            self._store.release(series)

    # What is shown

    def faults(self) -> tuple[Fault, ...]:
        """Files that were damaged at the start."""
        return tuple(
            Fault("prediction", each.path, f"{each.reason}; what it held is learned anew")
            for each in self._refused
        )


def _pairs(names: tuple[str, ...], values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(names, values, strict=True))


def _nothing() -> None:
    """No work."""
