"""Latency of disks, segments sent again and interrupts, on the metrics page. Who makes whom wait is
in ``waits``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from koordlet.decision import metrics as k
from koordlet.decision.family import Labels
from koordlet.engine.engine import Engine
from koordlet.report import metrics as r
from koordlet.views.usage import Usage

_WINDOWS_S = 150.0
"""Interrupts are measured once a minute."""


def publish(
    engine: Engine,
    usage: Usage,
    pods: Mapping[str, Labels],
    containers: Mapping[str, Labels],
) -> Iterator[None]:
    """``pods``, ``containers``: labels by uid and by id."""
    metrics = engine.parts.metrics
    latencies = usage.latest(k.CONTAINER_IO_LATENCY, slow=True).items()
    metrics.replace(
        r.CONTAINER_IO_LATENCY,
        {
            (*containers[container], stage, quantile): value / 1e6
            for (container, stage, quantile), value in latencies
            if container in containers
        },
    )
    yield
    again = usage.latest(k.POD_TCP_RETRANSMITS, slow=True).items()
    metrics.replace(r.POD_TCP_RETRANSMITS, {pods[uid]: n for (uid,), n in again if uid in pods})
    interrupts = usage.latest(k.POD_IRQ_TIME, slow=True, within_s=_WINDOWS_S).items()
    metrics.replace(
        r.POD_IRQ_TIME,
        {(*pods[uid], irq): value / 1000 for (uid, irq), value in interrupts if uid in pods},
    )
    yield
