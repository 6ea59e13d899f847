"""Makes kidled of Anolis and Alibaba Cloud kernels scan, so that collector ``cold`` can read how
long pages have been idle (docs/reference/metrics.md 2.12; D-23 mended: set once, and put back).

Off by default: the kernel then walks through all memory, every five seconds.
"""

from __future__ import annotations

from typing import Annotated

from koordlet.decision.options import Options, about
from koordlet.decision.plan import Decision, Plan, Setting
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Snapshot
from koordlet.decision.strategy import Strategy
from koordlet.decision.why import Input, Why

NAME = "kidled"
SCAN_PERIOD_S = 5
"""As in the reference: 60 scans, after which a page counts as cold, are five minutes."""


class KidledOptions(Options, frozen=True):
    enable: Annotated[bool, about("Off: kidled stays as it was found.")] = False


def decide(snapshot: Snapshot, memory: None, _: Options) -> Decision:
    """The complete plan."""
    if not snapshot.node.has(Resource.KIDLED_SCAN_PERIOD):
        text = "this kernel has no kidled"
        return Decision(Plan(NAME), None, (Why("kidled.unsupported", text),))
    why = Why(
        "kidled.scan",
        f"kidled looks at all pages every {SCAN_PERIOD_S} s and counts those of a pod's containers "
        "as the pod's",
        (Input("scan period", SCAN_PERIOD_S, "s"),),
    )
    settings = (
        Setting("", Resource.KIDLED_SCAN_PERIOD, SCAN_PERIOD_S, why),
        Setting("", Resource.KIDLED_USE_HIERARCHY, 1, why),
    )
    return Decision(Plan(NAME, settings))


STRATEGY = Strategy(
    name=NAME,
    help="Makes kidled count idle pages, on kernels that have it.",
    function=decide,
    initial=None,
    options=KidledOptions(),
    writes=(Resource.KIDLED_SCAN_PERIOD, Resource.KIDLED_USE_HIERARCHY),
    needs=(Resource.KIDLED_SCAN_PERIOD,),
)
