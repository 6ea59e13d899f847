"""An instant of the past, as data: what ``-o json`` has of it."""

from __future__ import annotations

from koordlet.admin.model.usage import PodView, TopView


class PastPodView(PodView, frozen=True, kw_only=True):
    """``age_s``: of the oldest sample shown of it, at the instant. Names and cgroups of containers,
    and why there is no throttling, are not kept."""

    age_s: float | None = None


class PastView(TopView, frozen=True, kw_only=True):
    """``time`` is the instant; ``age_s``: of the node's newest sample then. ``notes``: what is
    missing, and what must be known to read it."""

    age_s: float
    notes: tuple[str, ...] = ()
