"""CPU shares of best-effort applications."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from koordlet.decision.options import Options, about
from koordlet.decision.plan import Decision, Plan, Setting
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Snapshot
from koordlet.decision.strategy import Strategy
from koordlet.decision.why import Input, Why

NAME = "be-weight"


class BeWeightOptions(Options, frozen=True):
    shares: Annotated[
        Annotated[int, Meta(ge=2, le=1024)],
        about("CPU shares of each best-effort application; 1024 are usual."),
    ] = 64


def decide(snapshot: Snapshot, _: None, options: BeWeightOptions) -> Decision:
    """The complete plan: what it leaves out goes back to what was found."""
    text = f"best-effort applications get {options.shares} CPU shares"
    why = Why("be-weight.application", text, (Input("shares", options.shares),))
    settings = tuple(
        Setting(app.cgroup, Resource.CPU_SHARES, options.shares, why)
        for app in snapshot.applications
        if app.present and app.is_best_effort
    )
    return Decision(Plan(NAME, settings))


STRATEGY = Strategy(
    name=NAME,
    help="Few CPU shares for best-effort applications.",
    function=decide,
    initial=None,
    options=BeWeightOptions(),
    writes=(Resource.CPU_SHARES,),
    needs=(Resource.CPU_SHARES,),
)
