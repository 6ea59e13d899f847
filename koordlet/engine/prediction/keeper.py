"""The models on disk: when each is saved, and what could not be read or written.

Methods are for the loop; what they return does the I/O, for a worker thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from koordlet.decision.snapshot import Fault
from koordlet.engine.prediction import files
from koordlet.engine.prediction.files import DIRECTORY, Failed, Failures, Loaded
from koordlet.engine.prediction.kept import Models
from koordlet.prediction.checkpoint import decode, encode
from koordlet.prediction.part import PredictionOptions
from koordlet.prediction.subject import Subject

_SHOWN = 8


class UnsavedError(Exception):
    """Models that could not be written; the text has the path of one, and why."""


class Keeper:
    """``has_tried``: the files of an earlier run have been looked at. ``refused_count``: damaged
    files since the start."""

    def __init__(self, models: Models, directory: str) -> None:
        self._models = models
        self._directory = directory
        self.refused_count = 0
        self._refused: deque[Failed] = deque(maxlen=_SHOWN)
        self.begin_anew()

    def begin_anew(self) -> None:
        self.has_tried = False
        self._unread: Failures = {}
        self._unsaved: Failures = {}

    @property
    def is_waiting(self) -> bool:
        """There may be files that have not been read."""
        return not self.has_tried or bool(self._unread)

    def load(self, options: PredictionOptions, time_s: float) -> Callable[[], Loaded]:
        """Of what has not been read yet. ``time_s``: unix time."""

        def decoded(data: bytes) -> Subject:
            subject = decode(data, options.cpu_half_life_s, options.memory_half_life_s, time_s)
            for forecast in subject.forecasts:
                forecast.look_ahead(time_s)
            return subject

        wanted = tuple(self._unread) if self.has_tried else (DIRECTORY,)
        return partial(files.load, self._directory, decoded, wanted)

    def took(self, loaded: Loaded) -> None:
        """What ``load`` found, but for the models."""
        self._refused.extend(loaded.refused)
        self.refused_count += len(loaded.refused)
        self._unread = loaded.unread
        self.has_tried = True

    def upkeep(
        self, gone: Sequence[str], options: PredictionOptions, now_s: float
    ) -> Callable[[], None]:
        """Chooses the models to be saved; the files of those that are ``gone`` go. ``now_s``:
        monotonic. What is returned raises OSError where there can be no directory, and UnsavedError
        as long as a file could not be written."""
        due_s = now_s - options.checkpoint_interval_s
        due = sorted(
            (model.tried_s, uid)
            for uid, model in self._models.items()
            if model.tried_s <= due_s and self._may_be_saved(uid)
        )
        chosen = [uid for _, uid in due[: options.checkpoint_max_per_step]]
        tried = [self._models[uid] for uid in chosen]
        encoded = list(self._encoded(chosen))
        removed = [uid for uid in gone if files.can_be_saved(uid)]
        rest = {
            uid: failed
            for uid, failed in self._unsaved.items()
            if uid in self._models and uid not in chosen
        }

        def work() -> None:
            files.remove(self._directory, removed)
            self._unsaved = {**rest, **files.save(self._directory, encoded)}
            # One that cannot be written waits for its turn like the others, and holds up none.
            for model in tried:
                model.tried_s = now_s
            _tell(self._unsaved)

        return work

    def close(self) -> None:
        """Saves every model, not safe from a power cut: that would take seconds. Raises OSError and
        UnsavedError."""
        known = filter(self._may_be_saved, self._models)
        _tell(files.save(self._directory, self._encoded(known), is_durable=False))

    def faults(self) -> Iterator[Fault]:
        """Files that were damaged at the start, and those that cannot be read for now."""
        for each in self._refused:
            message = f"{each.reason}; what it held is learned anew"
            yield Fault("prediction", each.path, message)
        for each in tuple(self._unread.values())[:_SHOWN]:
            message = f"{each.reason}; it is left as it is, and read again each minute"
            yield Fault("prediction", each.path, message)

    def _may_be_saved(self, uid: str) -> bool:
        """What could not be read is not overwritten: it may be good."""
        is_unread = DIRECTORY in self._unread or uid in self._unread
        return not is_unread and files.can_be_saved(uid)

    def _encoded(self, uids: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        for uid in uids:
            yield uid, encode(uid, self._models[uid].subject)


def _tell(unsaved: Failures) -> None:
    """Raises UnsavedError where there is one."""
    for first in unsaved.values():
        more = f" (and {len(unsaved) - 1} more files)" if len(unsaved) > 1 else ""
        raise UnsavedError(f"{first.path}: {first.reason}{more}")
