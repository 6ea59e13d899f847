"""What of the store goes into a window."""

from __future__ import annotations

import pytest

from koordlet.decision.metrics import CPU_WAIT, POD_CPU_USAGE
from koordlet.qos.interference.windows import Who, span_of, window
from koordlet.state.snapshot import TsdbView
from koordlet.tsdb.store import Store
from tests.qos.build import node, pod, snapshot

START_MS = 1_700_000_000_000


def _view(waits_at_s: tuple[float, ...]) -> TsdbView:
    """``web`` uses 0.1 cores for 9 s, then 0.9 for one; samples of its waits at these times."""
    store = Store(None)
    use = store.series(POD_CPU_USAGE.kind, (("pod_uid", "web"),))
    total = store.series(CPU_WAIT.pod_total.kind, (("pod_uid", "web"),))
    labels = (("pod_uid", "web"), ("culprit", "sort"), ("culprit_kind", "pod"))
    cell = store.series(CPU_WAIT.pod.kind, labels)
    for second in range(1, 11):
        ids, values = [use], [0.9 if second == 10 else 0.1]
        if second in waits_at_s:
            ids += [total, cell]
            values += [100.0, 100.0]
        store.append(START_MS + 1000 * second, ids, values)
    return TsdbView(store, START_MS + 10_000)


@pytest.mark.parametrize(
    ("waits_at_s", "span_s", "cores"),
    [((10,), 10.0, 0.18), ((9, 10), 1.0, 0.9)],
    ids=["a regular look", "a look at once"],
)
def test_demand_is_of_the_time_that_the_waits_are_of(
    waits_at_s: tuple[float, ...], span_s: float, cores: float
) -> None:
    now = START_MS / 1000 + 10
    found = snapshot(node(4), pods=(pod("web"),), metrics_=_view(waits_at_s), now=now - 1.7e9)
    assert span_of(found, CPU_WAIT, now, now - 10) == span_s
    (row,) = window(found, CPU_WAIT, now, span_s, (), {Who("pod", "web")})
    assert row.demand_ms_per_s == pytest.approx(100 + 1000 * cores, rel=0.01)
