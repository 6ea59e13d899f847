"""CPU shares of applications by their CPU request, as kubelet gives them to pods."""

from __future__ import annotations

from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.resource import MIN_SHARES, Resource
from koordlet.decision.snapshot import Snapshot
from koordlet.decision.strategy import Adjustment, Hook, Level, Subject
from koordlet.decision.why import Input, Why


def _evaluate(subject: Subject, _: Snapshot, __: Options) -> Adjustment:
    application = subject.application
    milli = application.resources.request_cpu_milli if application is not None else None
    if not milli:
        return Adjustment()
    shares = max(milli * 1024 // 1000, MIN_SHARES)
    why = Why("request-weight.request", "by its CPU request", (Input("request", milli, "milli"),))
    return Adjustment(((Resource.CPU_SHARES, shares, why),))


HOOK = Hook(
    name="request-weight",
    help="CPU shares of applications by their CPU request.",
    options=DEFAULTS,
    levels=(Level.APPLICATION,),
    function=_evaluate,
    needs=(Resource.CPU_SHARES.value,),
    writes=(Resource.CPU_SHARES,),
    overrides=("cpu-qos",),
    without="applications have the CPU shares that systemd gives them",
)
