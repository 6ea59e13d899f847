"""The means that koordlet finds by measuring (``cpu-means``), beside the default ones.

The daemon manages best-effort work beside a service under load until its trial is over. Then
slices: the service alone, with the default means, and with those that the trial has chosen.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from bench.child import Daemon, daemon
from bench.effects.client import Client, Load
from bench.effects.slices import (
    SMOKE,
    Holder,
    Size,
    Slice,
    going_on,
    in_slices,
    latency_ratio,
    mean_value,
    waits_figures,
)
from bench.effects.stage import Stage, stage
from bench.effects.whole import Pair, calibrated_rate, config
from bench.figures import Figure, Measured, NotMeasuredError
from koordlet.admin import client as admin
from koordlet.qos.cpu_means.strategy import NAME

_PERCENT = 95
_TRIAL_S, _LOOK_S, _LEAD_S = 330.0, 1.0, 0.5
_OVER = "latency-sensitive work waits", "no other means is surely better"


def run(pair: Pair, smoke: bool, say: Callable[[str], None], size: Size | None = None) -> Measured:
    """Raises PermissionError without root, NotMeasuredError where no trial comes to an end."""
    size = size or (SMOKE if smoke else Size())
    rate = calibrated_rate(pair, smoke)
    with stage("ls", "be") as on, going_on(on):
        requests, done = pair.ls(on), pair.be(on)
        with daemon(config(on, _PERCENT, trial=True)) as child:
            means = "" if smoke else _trial(on, child, requests(rate, _TRIAL_S, size.seed), say)
            chosen = f"chosen ({means})"
            holder = Holder(on, child)

            def managed(*, by_default: bool) -> None:
                holder.enter(best_effort=True, managed=True)
                with admin.Client(str(child.socket)) as asking:
                    if by_default:
                        asking.pause((NAME,), (), for_s=None, reason="the other arm")
                    else:
                        with contextlib.suppress(admin.RefusedError):  # it is not paused
                            asking.resume((NAME,), ())

            arms: dict[str, Callable[[], None]] = {
                "alone": lambda: holder.enter(best_effort=False, managed=False),
                "default": lambda: managed(by_default=True),
                chosen: lambda: managed(by_default=False),
            }
            slices = in_slices(
                on, lambda seconds: requests(rate, seconds, size.seed), arms, size, say, done
            )
    return Measured(_figures(pair, chosen, slices), size.seed, slices)


def _trial(on: Stage, child: Daemon, load: Load, say: Callable[[str], None]) -> str:
    """Return which means were chosen, when it is over."""
    client = Client(load, on.directory, "trial")
    said = ""
    try:
        begins = time.monotonic() + _LEAD_S
        client.begin(begins)
        while time.monotonic() < begins + _TRIAL_S:
            on.check()
            time.sleep(_LOOK_S)
            with admin.Client(str(child.socket)) as asking:
                result = next(e.result for e in asking.status().strategies if e.name == NAME)
            if result != said:
                said = result
                say(result)
            if any(each in result for each in _OVER):
                return result.partition(":")[0]
    finally:
        client.kill()
    raise NotMeasuredError(f"no trial came to an end (use a calm machine): {said}")


def _figures(pair: Pair, chosen: str, slices: Sequence[Slice]) -> list[Figure]:
    default_p99, p99 = (latency_ratio(slices, arm, 0.99) for arm in ("default", chosen))
    found = [
        Figure.of("p99 default / alone", default_p99, "x"),
        Figure.of(f"p99 {chosen} / alone", p99, "x", pair.goal),
        Figure.of(f"p99 {chosen} / default", latency_ratio(slices, chosen, 0.99, "default"), "x"),
    ]
    for arm in ("default", chosen):
        cores = mean_value(slices, arm, lambda each: each.cores["be"])
        found.append(Figure.of(f"BE {arm}", cores, "cores"))
    return [*found, *waits_figures(slices, ("alone", "default", chosen))]
