"""A best-effort leak, from the threshold of the machine's memory to the memory freed.

Three applications under a daemon: ``ls``, a small best-effort one, and a best-effort one that takes
2 % of the machine's memory a second. The threshold is a little above what is in use when the leak
begins. The bench reads /proc/meminfo two hundred times a second; the moment of the threshold is
the one that it saw, not the one that the daemon did.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.child import Daemon
from bench.effects.memory import start
from bench.effects.memory_load import MIB
from bench.effects.stage import Running, managed, only, stage
from bench.figures import Figure, NotMeasuredError, quantile
from koordlet.decision.record import Kind
from koordlet.kernel.parse import meminfo
from koordlet.report.decisions import DecisionLog

CONFIG = """
[slo.resourceUsedThresholdWithBE]
enable = true
memoryEvictThresholdPercent = {threshold}
memoryEvictLowerPercent = {lower}
"""
CLASSES = {"ls": "LS", "calm": "BE", "leak": "BE"}
GOAL_S = 2.0
_ABOVE_PERCENT = 2
_START_MIB = 96  # what the daemon and the leak itself take before it begins; 5 % of a small guest
_RATE_PERCENT = 2
_MOST_PERCENT = 12
_MIN_FREE_PERCENT = 20
_HELD_MIB = {"ls": 64, "calm": 16, "leak": 32}
_LOOK_S = 0.005
_SETTLE_S = 2.0  # the daemon has looked at everybody at least once
_TIMEOUT_S = 60.0
_TRIES = 5


@dataclass(frozen=True)
class Seen:
    """``freed_s``: from the threshold to the end of the leak. ``victims``: names, in order.
    ``ls_kept``: it runs, and has all its memory. ``disturbed``: others took so much meanwhile that
    more had to go."""

    freed_s: float
    victims: tuple[str, ...]
    ways: tuple[str, ...]
    ls_kept: bool
    disturbed: bool


def run(smoke: bool, say: Callable[[str], None], repeat: int | None = None) -> list[Figure]:
    polite = repeat or (1 if smoke else 20)
    deaf = max(1, polite // 2)

    def times(count: int, manner: str) -> list[Seen]:
        found = []
        for number in range(count):
            say(f"leak {number + 1} of {count}" + (f", {manner}" if manner else ""))
            found.append(_undisturbed(manner))
        return found

    return _figures(times(polite, ""), times(deaf, "deaf"))


def _undisturbed(manner: str) -> Seen:
    for _ in range(_TRIES):
        seen = measure(manner)
        if not seen.disturbed:
            return seen
    raise NotMeasuredError("other processes take too much memory; run it on a calm machine")


def measure(manner: str = "", deadline_s: float = _TIMEOUT_S) -> Seen:
    """``manner``: ``deaf`` = the leak does not end at SIGTERM. Raises NotMeasuredError on a
    machine without memory to spare."""
    _room()
    with stage(*CLASSES) as on:
        held = {name: start(on, name, "hold", _HELD_MIB[name]) for name in ("ls", "calm")}
        ls_pages = _pages(held["ls"])
        total_mib = _total_bytes() // MIB
        start_percent = math.ceil(100 * _START_MIB / total_mib)
        threshold = used_percent() + start_percent + _ABOVE_PERCENT
        config = on.config(
            CLASSES,
            only("memory-evict") + CONFIG.format(threshold=threshold, lower=threshold - 1),
            dict.fromkeys(CLASSES, 'evict = "stop"\n'),
        )
        with managed(config) as child:
            assert child is not None
            time.sleep(_SETTLE_S)
            leak = start(
                on,
                "leak",
                "leak",
                _HELD_MIB["leak"],
                total_mib * _RATE_PERCENT // 100,
                total_mib * _MOST_PERCENT // 100,
                *([manner] if manner else []),
            )
            freed_s = _watch(child, leak, threshold, deadline_s)
            disturbed = used_percent() >= threshold
            _until_told(child, deadline_s)
            victims, ways = _victims(child)
        kept = held["ls"].process.poll() is None and _pages(held["ls"]) >= ls_pages
    return Seen(freed_s, victims, ways, kept, disturbed)


def used_percent() -> int:
    """As ``memoryEvictThresholdPercent`` counts it."""
    info = meminfo(Path("/proc/meminfo").read_bytes(), "/proc/meminfo")
    return (info.total_bytes - (info.available_bytes or 0)) * 100 // info.total_bytes


def _total_bytes() -> int:
    return meminfo(Path("/proc/meminfo").read_bytes(), "/proc/meminfo").total_bytes


def _room() -> None:
    free = 100 - used_percent()
    if free < _MIN_FREE_PERCENT:
        raise NotMeasuredError(
            f"{free} % of the memory is available, and the leak wants {_MIN_FREE_PERCENT} %; "
            "run the bench where others use less"
        )


def _pages(running: Running) -> int:
    """Resident ones; 0 when it has ended."""
    try:
        return int(Path(f"/proc/{running.pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _watch(child: Daemon, leak: Running, threshold: int, deadline_s: float) -> float:
    """Seconds from the threshold to the end of the leak. Raises TimeoutError, and NotMeasuredError
    where the threshold was not seen."""
    crossed = before = 0.0
    end = time.monotonic() + deadline_s
    while (now := time.monotonic()) < end:
        child.check()
        if leak.process.poll() is not None:
            # A process gives its memory back a little before it has ended.
            if began := crossed or before:
                return now - began
            raise NotMeasuredError("other processes use and free too much memory meanwhile")
        if used_percent() >= threshold:
            crossed = crossed or now
        elif crossed:
            before, crossed = crossed, 0.0
        time.sleep(_LOOK_S)
    what = "the leak was not ended" if crossed else f"{threshold} % were not reached"
    raise TimeoutError(f"{what} within {deadline_s:.0f} s")


def _until_told(child: Daemon, deadline_s: float) -> None:
    """Until the log of decisions says how it ended."""
    end = time.monotonic() + deadline_s
    while not _victims(child)[0] and time.monotonic() < end:
        time.sleep(0.1)


def _victims(child: Daemon) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of those whose eviction has ended, and how."""
    log = DecisionLog(str(child.directory / "state" / "decisions"))
    try:
        ended = [
            each
            for each in log.read(newest_first=False)
            if each.kind is Kind.EVICTION and each.result != "evicting"
        ]
    finally:
        log.close()
    return tuple(os.path.basename(each.cgroup) for each in ended), tuple(
        f"{each.result}: {each.detail}" for each in ended
    )


def _figures(polite: list[Seen], deaf: list[Seen]) -> list[Figure]:
    seconds = [each.freed_s for each in polite]
    every = polite + deaf
    return [
        Figure("from the threshold to memory freed, p50", quantile(seconds, 0.5), "s"),
        Figure("from the threshold to memory freed, worst", max(seconds), "s", GOAL_S),
        Figure(
            "the same where SIGTERM is ignored, worst",
            max(each.freed_s for each in deaf),
            "s",
            GOAL_S,
        ),
        Figure(
            "right victim, and no other",
            sum(each.victims == ("leak",) for each in every),
            f"of {len(every)}",
            len(every),
            at_most=False,
        ),
        Figure(
            "LS runs on with all its memory",
            sum(each.ls_kept for each in every),
            f"of {len(every)}",
            len(every),
            at_most=False,
        ),
    ]
