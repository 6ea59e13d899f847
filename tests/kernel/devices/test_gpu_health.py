"""Xid events mark cards."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from koordlet.decision.devices import HEALTHY, Health, State
from koordlet.kernel.devices import xid_events
from koordlet.kernel.devices.gpu_health import NOT_HEARD, GpuHealth
from koordlet.kernel.devices.nvml_abi import Code
from tests.kernel.devices.fake_nvml import TWO, A, B, FakeNvml, until


@pytest.fixture
def health(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[GpuHealth]:
    monkeypatch.setattr(xid_events, "WAIT_MS", 20)
    monkeypatch.setattr(xid_events, "AGAIN_S", 0.02)
    found = GpuHealth(lambda: 1000.0)
    yield found
    found.stop()
    until(lambda: fake_nvml.sessions == 0)


def state(health: GpuHealth, uuid: str) -> tuple[State, str] | None:
    found = health.of(uuid)
    return (found.state, found.code) if found is not None else None


def marked(xid: int) -> tuple[State, str]:
    return State.UNHEALTHY, f"Xid{xid}"


def test_who_reports_nothing_is_healthy(fake_nvml: FakeNvml, health: GpuHealth) -> None:
    fake_nvml.say(*TWO)
    assert health.of(A) is None  # before anybody looked
    health.follow(fake_nvml.load())
    until(lambda: health.of(B) is HEALTHY)
    assert health.of(A) is HEALTHY


def test_while_nobody_listens_no_card_is_healthy(fake_nvml: FakeNvml, health: GpuHealth) -> None:
    """A card that is marked stays so."""
    fake_nvml.say(*TWO, "event 1 1 79")
    health.follow(fake_nvml.load())
    until(lambda: state(health, B) == marked(79))
    assert health.of(A) is HEALTHY
    fake_nvml.add(f"fail nvmlEventSetWait_v2 {Code.UNKNOWN}")
    until(lambda: state(health, A) == (State.UNKNOWN, NOT_HEARD))
    found = health.of(A)
    assert found is not None and found.why == (
        "events of errors cannot be waited for: nvmlEventSetWait_v2: Unknown Error (999)"
    )
    assert state(health, B) == marked(79)
    fake_nvml.drop("fail")
    until(lambda: health.of(A) is HEALTHY)


def test_events_that_were_never_heard_are_no_health(fake_nvml: FakeNvml, health: GpuHealth) -> None:
    fake_nvml.say(*TWO, f"fail nvmlEventSetCreate {Code.UNKNOWN}")
    health.follow(fake_nvml.load())
    until(lambda: state(health, A) == (State.UNKNOWN, NOT_HEARD))


def test_a_wait_that_hangs_hears_nothing(
    fake_nvml: FakeNvml, health: GpuHealth, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvml.say(*TWO)
    health.follow(fake_nvml.load())
    until(lambda: health.of(A) is HEALTHY)
    monkeypatch.setattr(xid_events, "SILENT_S", 0.2)
    fake_nvml.add("hang nvmlEventSetWait_v2")
    until(lambda: state(health, A) == (State.UNKNOWN, NOT_HEARD))
    fake_nvml.drop("hang")
    until(lambda: health.of(A) is HEALTHY)


def test_a_card_that_cannot_be_listened_to(fake_nvml: FakeNvml, health: GpuHealth) -> None:
    """It refused, or did not answer: each says why."""
    refuses = f"fail nvmlDeviceRegisterEvents {Code.NO_PERMISSION} 0"
    fake_nvml.say(*TWO, refuses, f"fail nvmlDeviceGetUUID {Code.UNKNOWN} 1")
    health.follow(fake_nvml.load())
    until(lambda: state(health, A) == (State.UNKNOWN, NOT_HEARD))
    for uuid, why in ((A, "Insufficient Permissions"), (B, "did not answer")):
        found = health.of(uuid)
        assert found is not None and (found.code, why in found.why) == (NOT_HEARD, True)


def test_a_critical_xid_marks_its_card_for_good(fake_nvml: FakeNvml, health: GpuHealth) -> None:
    """Also beyond a session that ends with an error, and begins anew."""
    fake_nvml.say(*TWO, "event 1 1 79")
    health.follow(fake_nvml.load())
    until(lambda: state(health, B) == marked(79))
    wanted = Health(State.UNHEALTHY, "Xid79", "the driver reported Xid 79", 1000.0)
    assert health.of(B) == wanted
    assert health.of(A) is HEALTHY
    fake_nvml.drop("event")
    fake_nvml.add(f"fail nvmlEventSetWait_v2 {Code.UNKNOWN}")
    until(lambda: fake_nvml.sessions == 0)
    fake_nvml.drop("fail")
    until(lambda: fake_nvml.sessions == 1)
    assert health.of(B) == wanted


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])
def test_what_a_program_does_wrong_marks_nothing(
    fake_nvml: FakeNvml, health: GpuHealth, xid: int
) -> None:
    """It is followed by one that counts, so that it must have been seen."""
    fake_nvml.say(*TWO, f"event 1 0 {xid}", "event 2 1 48")
    health.follow(fake_nvml.load())
    until(lambda: state(health, B) == marked(48))
    assert health.of(A) is HEALTHY


def test_an_event_of_no_card_marks_all(fake_nvml: FakeNvml, health: GpuHealth) -> None:
    fake_nvml.say(*TWO, "event 1 -1 79")
    health.follow(fake_nvml.load())
    until(lambda: state(health, A) == state(health, B) == marked(79))


def test_an_event_of_a_card_that_has_no_name_any_more_marks_all(
    fake_nvml: FakeNvml, health: GpuHealth
) -> None:
    fake_nvml.say(*TWO)
    health.follow(fake_nvml.load())
    until(lambda: health.of(B) is HEALTHY)
    fake_nvml.add(f"fail nvmlDeviceGetUUID {Code.GPU_IS_LOST} 1", "event 1 1 79")
    until(lambda: state(health, A) == state(health, B) == marked(79))


def test_a_card_without_such_events(fake_nvml: FakeNvml, health: GpuHealth) -> None:
    fake_nvml.say(*TWO, f"fail nvmlDeviceRegisterEvents {Code.NOT_SUPPORTED} 0")
    health.follow(fake_nvml.load())
    until(lambda: health.of(B) is HEALTHY)
    assert state(health, A) == (State.UNKNOWN, "DeviceHealthCheckNotSupported")


def test_a_second_call_begins_no_second_thread(fake_nvml: FakeNvml, health: GpuHealth) -> None:
    fake_nvml.say(*TWO)
    nvml = fake_nvml.load()
    health.follow(nvml)
    until(lambda: health.of(A) is HEALTHY)
    health.follow(nvml)
    assert fake_nvml.sessions == 1


def test_stopped_it_forgets_and_lets_go(fake_nvml: FakeNvml, health: GpuHealth) -> None:
    fake_nvml.say(*TWO, "event 1 0 79")
    health.follow(fake_nvml.load())
    until(lambda: state(health, A) == marked(79))
    health.stop()
    assert health.of(A) is None
    until(lambda: fake_nvml.sessions == 0)


def test_a_driver_that_hangs_keeps_nobody_waiting(fake_nvml: FakeNvml, health: GpuHealth) -> None:
    """Neither who asks nor who stops it."""
    fake_nvml.say(*TWO, "hang nvmlEventSetCreate")
    health.follow(fake_nvml.load())
    until(lambda: fake_nvml.sessions == 1)
    assert health.of(A) is None
    health.stop()
    assert health.of(A) is None
    fake_nvml.drop("hang")


class _Log:
    """What each thread warns of: one of an earlier test may still be letting go of the driver."""

    def __init__(self) -> None:
        self.said: list[tuple[threading.Thread, str, str]] = []

    def warning(self, event: str, error: str) -> None:
        self.said.append((threading.current_thread(), event, error))


def test_what_the_driver_keeps_is_told_once(
    fake_nvml: FakeNvml, health: GpuHealth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends a session, and however often one begins anew."""
    log = _Log()
    monkeypatch.setattr(xid_events, "log", log)
    others = set(threading.enumerate())
    fake_nvml.say(*TWO, f"fail nvmlEventSetFree {Code.UNKNOWN}")
    health.follow(fake_nvml.load())
    until(lambda: health.of(A) is HEALTHY)
    for _ in range(2):
        fake_nvml.add(f"fail nvmlEventSetWait_v2 {Code.UNKNOWN}")
        until(lambda: state(health, A) == (State.UNKNOWN, NOT_HEARD))
        fake_nvml.drop("fail nvmlEventSetWait_v2")
        until(lambda: health.of(A) is HEALTHY)
    event = "the driver keeps what events were heard by"
    kept = [error for thread, said, error in log.said if thread not in others and said == event]
    assert len(kept) == 1
    assert "nvmlEventSetFree" in kept[0]
