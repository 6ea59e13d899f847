"""What a decision says of antagonists. No text has figures, so that each is recorded once for as
long as it holds."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from koordlet.decision.names import shown
from koordlet.decision.snapshot import Snapshot
from koordlet.decision.why import Input, Why
from koordlet.qos.interference import by_cpi, by_waits, memory_room
from koordlet.qos.interference.hold import targets_of
from koordlet.qos.interference.pairs import Suffering
from koordlet.qos.interference.titles import title, waits_for
from koordlet.qos.interference.windows import OTHERS, Antagonist, busiest_process

MOST = 8
"""Antagonists that one decision names."""
_SYSTEM = "work outside pods and applications keeps it waiting"
_ADVICE = {
    ("cpu", "self"): "its own tasks keep each other waiting: it needs more CPUs",
    ("cpu", "throttled"): "its own CPU limit keeps it waiting: raise it, or let it burst",
}
_SHARE = "of its demand"


def notes(
    snapshot: Snapshot,
    antagonists: Sequence[Antagonist],
    waits: by_waits.Known,
    cpi: by_cpi.Known,
    held: Container[str],
    *,
    act: bool,
) -> Iterator[Why]:
    """``antagonists``: the worst first. ``held``: cgroups with a limit of ours."""
    for each in antagonists[:MOST]:
        inputs = _of_cpi(each, cpi) if each.resource == by_cpi.RESOURCE else _of_waits(each, waits)
        if process := busiest_process(snapshot, each):
            inputs = (*inputs, Input("busiest process", process))
        # A rule of its own: one rule is recorded every half minute at most.
        names = (who.name or who.kind for who in (each.victim, each.culprit))
        rule = ".".join(("interference", each.resource, *map(shown, names)))
        yield Why(rule, _text(snapshot, each, held, act=act), inputs)
    more = len(antagonists) - MOST
    if more > 0:
        yield Why(
            "interference.more",
            f"there are {more} more antagonists; koordlet_interference_blame_ratio has them all",
        )


def _text(snapshot: Snapshot, each: Antagonist, held: Container[str], *, act: bool) -> str:
    culprit = each.culprit
    victim = f"{title(snapshot, each.victim)} {waits_for(each.resource)}"
    if culprit.kind == "system":
        where = "the root cgroup" if culprit.name == "/" else shown(culprit.name)
        return f"{victim}: {_SYSTEM}" + (f" ({where})" if where else "")
    if culprit.kind not in OTHERS:
        if each.resource == "memory":
            room = memory_room.advice(snapshot, each.victim)
            return f"{victim}: it takes memory faster than it is freed{room}"
        return f"{victim}: {_ADVICE[each.resource, culprit.kind]}"
    if each.resource == by_cpi.RESOURCE:
        text = f"{victim} while {title(snapshot, culprit)} is busy"
    else:
        text = f"{victim} because of {title(snapshot, culprit)}"
    return text if culprit.kind == "rest" else f"{text}; {_done(snapshot, each, held, act=act)}"


def _done(snapshot: Snapshot, each: Antagonist, held: Container[str], *, act: bool) -> str:
    targets = tuple(targets_of(snapshot, each.culprit))
    if not targets:
        return "it is not best-effort, so it is only reported"
    if not act:
        return "with act = true it would be held back while the victim suffers"
    if any(target.cgroup in held for target in targets):
        return "it is held back"
    return "it is left alone: the victim does not suffer, or it uses hardly any CPU"


def _of_waits(each: Antagonist, waits: by_waits.Known) -> tuple[Input, ...]:
    pair = waits.pairs[each.resource, each.victim, each.culprit]
    victim = waits.suffering.get((each.resource, each.victim), Suffering())
    return (
        Input("blame", round(pair.blame, 4), _SHARE),
        Input("normal", round(pair.normal.mean, 4), _SHARE),
        Input("limit", round(pair.normal.limit, 4), _SHARE),
        Input("bad windows", sum(pair.bad), f"of {len(pair.bad)}"),
        Input("clear windows", pair.clear, "in a row"),
        Input("wait", round(pair.blame * victim.demand_ms_per_s, 1), "ms/s", victim.span_s),
        Input("demand", round(victim.demand_ms_per_s, 1), "ms/s", victim.span_s),
        Input("waits for others", round(victim.share, 4), _SHARE),
        Input("its normal", round(victim.normal.mean, 4), _SHARE),
        Input("its limit", round(victim.normal.limit, 4), _SHARE),
        Input("suffers", victim.suffers),
    )


def _of_cpi(each: Antagonist, cpi: by_cpi.Known) -> tuple[Input, ...]:
    victim = by_cpi.victim_of(each, cpi)
    newest = victim.windows[-1]
    return (
        Input("correlation", round(each.share, 3)),
        Input("cycles per instruction", round(newest.cpi, 3)),
        Input("normal", round(victim.cpi.mean, 3)),
        Input("limit", round(victim.cpi.limit, 3)),
        Input("bad windows", sum(victim.cpi.bad), f"of {len(victim.cpi.bad)}"),
        Input("its CPU use", round(newest.use.get(each.culprit, 0.0), 3), "cores"),
    )
