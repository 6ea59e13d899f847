"""Memory taken back beside the event loop."""

from __future__ import annotations

import errno
import threading

import pytest
from koordlet_fakefs import FakeHost

from koordlet.actuator.reclaim import SLICE_BYTES, TIME_S, Reclaimer
from koordlet.decision.plan import Reclaim
from koordlet.decision.why import Why
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.reclaim import reclaim

MIB = 1 << 20
WHY = Why("test.reclaim", "because")


def furnished(layout: str = "v2", cache_bytes: int = 64 * MIB) -> FakeHost:
    host = FakeHost(layout)
    host.make_cgroup("be")
    host.read_files(host.spawn("be"), cache_bytes)
    return host


def reclaimer(host: FakeHost) -> Reclaimer:
    return Reclaimer(host, detect(host), start=lambda work: work())


def held(host: FakeHost) -> int:
    return int(host.read("/sys/fs/cgroup/be/memory.current"))


def test_slices_until_it_is_done() -> None:
    host = furnished()
    before = held(host)
    made = reclaimer(host)
    made.take("memory-qos", [Reclaim("be", 10 * MIB, WHY)])
    (done,) = made.ended()
    assert (done.size_bytes, done.error) == (10 * MIB, "")
    assert before - held(host) == 10 * MIB
    sizes = [int(data) for path, data in host.written if path.endswith("memory.reclaim")]
    assert sum(sizes) == 10 * MIB and max(sizes) == SLICE_BYTES
    assert made.ended() == []


def test_less_than_asked_for_ends_it_and_is_no_error() -> None:
    host = furnished(cache_bytes=6 * MIB)
    made = reclaimer(host)
    made.take("memory-qos", [Reclaim("be", 64 * MIB, WHY)])
    (done,) = made.ended()
    assert (done.size_bytes, done.error) == (SLICE_BYTES, "")
    assert held(host) == 0


def test_a_refusal_is_told_and_a_cgroup_that_went_is_none() -> None:
    host = furnished()
    made = reclaimer(host)
    host.faults.add("*/be/memory.reclaim", op="write", errno=errno.EINTR)
    made.take("memory-qos", [Reclaim("gone", MIB, WHY), Reclaim("be", MIB, WHY)])
    gone, refused = made.ended()
    assert (gone.size_bytes, gone.error) == (0, "")
    assert "EINTR" in refused.error


def test_v1_has_nothing_like_it() -> None:
    host = furnished("hybrid")
    with pytest.raises(FileNotFoundError, match="cgroup v2"):
        reclaim(host, detect(host), "be", MIB)
    with pytest.raises(ValueError, match="relative"):
        reclaim(host, detect(host), "../be", MIB)


class Slow(FakeHost):
    """Each reclaim takes its time, and waits for the test where it says so."""

    gate: threading.Event | None = None
    takes_s = 0.3
    passed_s = 0.0

    def write(self, path: str, data: bytes) -> None:
        if path.endswith("memory.reclaim"):
            if self.gate is not None:
                assert self.gate.wait(10)
            self.passed_s += self.takes_s
        super().write(path, data)

    def monotonic(self) -> float:
        return super().monotonic() + self.passed_s


def test_a_request_is_given_up_when_its_time_is_over() -> None:
    host = Slow("v2")
    host.make_cgroup("be")
    host.read_files(host.spawn("be"), 64 * MIB)
    made = reclaimer(host)
    made.take("memory-qos", [Reclaim("be", 64 * MIB, WHY)])
    (done,) = made.ended()
    slices = -int(-TIME_S // Slow.takes_s)
    assert done.size_bytes == slices * SLICE_BYTES and done.seconds >= TIME_S


def test_the_loop_does_not_wait_and_only_the_latest_wish_counts() -> None:
    host = Slow("v2")
    host.make_cgroup("be")
    host.read_files(host.spawn("be"), 64 * MIB)
    host.gate = threading.Event()
    made = Reclaimer(host, detect(host))
    made.take("memory-qos", [Reclaim("be", MIB, WHY)])
    made.take("memory-qos", [Reclaim("be", 2 * MIB, WHY)])
    made.take("memory-qos", [Reclaim("be", 3 * MIB, WHY)])
    assert made.ended() == []
    worker = next(t for t in threading.enumerate() if t.name == "reclaim")
    host.gate.set()
    worker.join(10)
    assert not worker.is_alive()
    assert [done.reclaim.size_bytes for done in made.ended()] in ([MIB, 3 * MIB], [3 * MIB])
