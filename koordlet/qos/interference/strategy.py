"""Interference: says who disturbs latency-sensitive work, and may hold best-effort culprits back.

For each victim and each one that makes it wait, the share of the victim's demand that it waited for
that one is compared with what is normal between the two (``pairs``). An antagonist is reported with
its figures; what to do about it depends on whose it is.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from koordlet.decision.family import Family, Kind
from koordlet.decision.options import Options, about
from koordlet.decision.plan import Decision, Gauge, Plan
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import ALARMS, Snapshot
from koordlet.decision.strategy import Strategy
from koordlet.qos.interference import by_cpi, by_waits
from koordlet.qos.interference.hold import Held, hold, settings
from koordlet.qos.interference.notes import notes

NAME = "interference"

BLAME = Family(
    "interference_blame_ratio",
    Kind.GAUGE,
    "Share of its demand that a victim waits for an antagonist, while it is one; with resource cpi "
    "the correlation of the antagonist's CPU use and the victim's slow windows",
    ("resource", "victim_kind", "victim", "culprit_kind", "culprit"),
)


class InterferenceOptions(Options, frozen=True):
    act: Annotated[
        bool,
        about(
            "Give best-effort antagonists less CPU, each alone; without it they are only reported."
        ),
    ] = False


class InterferenceState(msgspec.Struct, frozen=True):
    """``held``: by cgroup."""

    waits: by_waits.Known = by_waits.Known()
    cpi: by_cpi.Known = by_cpi.Known()
    held: dict[str, Held] = {}


def decide(snapshot: Snapshot, memory: InterferenceState, options: InterferenceOptions) -> Decision:
    """Reports antagonists; with ``act`` the plan holds the best-effort ones back."""
    waits, fresh = by_waits.look(snapshot, memory.waits)
    cpi = by_cpi.look(snapshot, memory.cpi)
    found = (
        *by_waits.antagonists(snapshot, waits, fresh),
        *by_cpi.antagonists(cpi, memory.cpi),
    )
    worst = sorted(found, key=lambda each: (-each.share, each))
    held = hold(snapshot, memory.held, worst) if options.act else {}
    limits = tuple(settings(snapshot, NAME, held))
    limited = {each.cgroup for each in limits}
    return Decision(
        Plan(NAME, limits),
        InterferenceState(waits, cpi, held),
        tuple(notes(snapshot, worst, waits, cpi, limited, act=options.act)),
        tuple(
            Gauge(BLAME, each.share, (each.resource, *each.victim, *each.culprit)) for each in worst
        ),
    )


STRATEGY = Strategy(
    name=NAME,
    help="Say who disturbs latency-sensitive work; hold best-effort culprits back where allowed.",
    function=decide,
    initial=InterferenceState(),
    options=InterferenceOptions(),
    families=(BLAME,),
    writes=(Resource.CPU_QUOTA_US,),
    uses=("bpf-run-queue", "bpf-block-io", "bpf-memory-stalls", "pmu", Resource.CPU_QUOTA_US),
    wakes_on=ALARMS,
)
