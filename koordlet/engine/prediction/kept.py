"""The models at hand, each with what the daemon remembers of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from koordlet.engine.prediction.files import MAX_MODELS
from koordlet.prediction.part import PredictionOptions
from koordlet.prediction.reclaimable import Amounts
from koordlet.prediction.subject import NODE_UIDS, Subject

_MOST = MAX_MODELS + len(NODE_UIDS)


@dataclass(slots=True)
class Kept:
    """``fed_s``: monotonic time of its last sample, later by what stalls have taken since.
    ``tried_s``: of the last try to save it. ``peak``: as of its last sample. ``series``: those of
    its peaks in the store."""

    subject: Subject
    fed_s: float
    tried_s: float = -math.inf
    peak: Amounts | None = None
    series: tuple[int, ...] = ()


Models = dict[str, Kept]
"""By uid."""


def kept(models: Models, uid: str, time_s: float, options: PredictionOptions) -> Kept | None:
    """The model of ``uid``, a new one where there is none; None beyond the most there may be.
    ``time_s``: unix time of its first sample."""
    found = models.get(uid)
    if found is None and has_room(models):
        subject = Subject(options.cpu_half_life_s, options.memory_half_life_s, time_s)
        found = models[uid] = Kept(subject, -math.inf)
    return found


def has_room(models: Models) -> bool:
    """Whether there may be one more."""
    return len(models) < _MOST
