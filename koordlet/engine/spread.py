"""What became of best-effort work whose threads are to be kept each on one CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from koordlet.decision.names import shown
from koordlet.decision.why import Input, Why
from koordlet.kernel.proc.spread import MOST_THREADS, SpreadState
from koordlet.qos.cpu_spread import NAME as CPU_SPREAD

__all__ = ["CPU_SPREAD", "spread_notes"]


def spread_notes(state: Mapping[str, SpreadState]) -> tuple[Why, ...]:
    """Cgroups of which threads are not kept, although koordlet was to."""
    return tuple(note for item in sorted(state.items()) for note in _of_cgroup(*item))


def _of_cgroup(cgroup: str, state: SpreadState) -> Iterator[Why]:
    if state.too_many:
        text = (
            f"{shown(cgroup)}: its {state.too_many} threads are more than the {MOST_THREADS} that "
            "koordlet looks at; none is kept on one CPU"
        )
        yield Why("cpu-spread.too-many", text, (Input("threads", state.too_many),))
    if state.refused:
        text = (
            f"{shown(cgroup)}: threads cannot be kept on one CPU: {state.refused}; koordlet needs "
            "CAP_SYS_NICE for those of other users"
        )
        yield Why("cpu-spread.refused", text)
