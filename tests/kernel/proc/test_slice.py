"""A slice of our own, asked of the kernel that runs this test and of ones that have none."""

from __future__ import annotations

import errno
import os
import platform
import threading

import pytest

from koordlet.decision.snapshot import Capability
from koordlet.kernel.proc import slice as own


def in_thread(slice_ns: int) -> tuple[Capability, int]:
    """Asked by a thread of its own, so that this process keeps its slice; and what it has then."""
    found: list[tuple[Capability, int]] = []

    def ask() -> None:
        capability = own.ask_for_short_slice(slice_ns)
        found.append((capability, own._get()[2]))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.kernel
def test_the_kernel_takes_it_or_the_outcome_says_why_not() -> None:
    capability, in_force_ns = in_thread(500_000)
    release = tuple(int(part) for part in platform.release().split(".")[:2])
    if release >= (6, 12):
        assert (capability.supported, in_force_ns) == (True, 500_000), capability.why
    else:
        assert not capability.supported
        assert "6.12" in capability.why and capability.cost


def test_an_old_kernel_ignores_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_get", lambda: (0, 0, 0))
    monkeypatch.setattr(own, "_set", lambda nice, slice_ns: None)
    capability = own.ask_for_short_slice()
    assert not capability.supported
    assert "the kernel says 0" in capability.why


def test_a_refusal_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(nice: int, slice_ns: int) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(own, "_get", lambda: (0, 0, 0))
    monkeypatch.setattr(own, "_set", refuse)
    assert own.ask_for_short_slice().why == "sched_setattr: Operation not permitted"


def test_another_policy_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_get", lambda: (1, 0, 0))
    monkeypatch.setattr(own, "_set", lambda nice, slice_ns: pytest.fail("asked all the same"))
    assert "scheduling policy 1" in own.ask_for_short_slice().why


def test_an_unknown_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "vax")
    assert "vax" in own.ask_for_short_slice().why
