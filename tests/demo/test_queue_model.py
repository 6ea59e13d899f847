from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.demo.queue_model import Service

_STEP_S = 0.01


def _run(service: Service, speed: float = 1.0, delay_s: float = 0.0) -> float:
    used_s, now = 0.0, 0.0
    while not service.finished:
        used_s += service.serve(now, now + _STEP_S, speed, delay_s)
        now += _STEP_S
    return used_s


def test_one_request_alone_takes_its_time() -> None:
    service = Service([0.005], 1, 0.02, 0.003, 1)
    assert _run(service) == pytest.approx(0.02)
    assert service.done == [(0.005, pytest.approx(0.02))]


def test_half_the_speed_takes_twice_as_long() -> None:
    service = Service([0.0], 1, 0.02, 0.003, 1)
    _run(service, speed=0.5)
    assert service.done[0][1] == pytest.approx(0.04)


def test_a_request_waits_while_all_workers_are_busy() -> None:
    service = Service([0.0, 0.0, 0.001], 2, 0.02, 0.003, 1)
    _run(service)
    assert [latency for _, latency in service.done] == pytest.approx([0.02, 0.02, 0.039])


def test_a_wake_up_waits_for_at_most_a_slice() -> None:
    """Always taken (mean = half a slice): everybody who finds an idle worker waits."""
    times = [index * 0.1 for index in range(200)]
    service = Service(times, 1, 0.01, 0.004, 1)
    _run(service, delay_s=0.002)
    waits = [latency - 0.01 for _, latency in service.done]
    assert all(0 <= wait <= 0.004 + 1e-9 for wait in waits)
    assert sum(waits) / len(waits) == pytest.approx(0.002, rel=0.2)


@given(
    st.lists(st.floats(0, 0.5), max_size=40).map(sorted),
    st.integers(1, 4),
    st.floats(0.1, 1.0),
)
def test_every_request_gets_its_work(times: list[float], workers: int, speed: float) -> None:
    service = Service(times, workers, 0.01, 0.003, 1)
    assert _run(service, speed) == pytest.approx(0.01 * len(times), abs=1e-6)
    assert sorted(arrival for arrival, _ in service.done) == times
    assert all(latency >= 0.01 / speed - 1e-9 for _, latency in service.done)


@given(st.lists(st.floats(0, 0.1), max_size=20).map(sorted), st.floats(0, 0.0015))
def test_what_is_foreseen_is_what_full_speed_uses(times: list[float], delay_s: float) -> None:
    service = Service(times, 2, 0.01, 0.003, 1)
    now = 0.0
    while not service.finished:
        wanted_s = service.wanted_s(now, now + _STEP_S, delay_s)
        assert wanted_s <= 2 * _STEP_S + 1e-9
        assert service.serve(now, now + _STEP_S, 1.0, delay_s) == pytest.approx(wanted_s)
        now += _STEP_S
