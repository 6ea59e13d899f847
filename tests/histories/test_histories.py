"""The whole daemon over random histories on the fake kernel: see docs/CONTRIBUTING.md for how to
repeat one, and to play others than those of CI."""

from __future__ import annotations

import gc
import os
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.histories.history import generate, play, quiet
from tests.histories.shrink import command, shrink
from tests.histories.steps import KINDS

HISTORIES = int(os.environ.get("KOORDLET_HISTORIES", "200"))
"""CI and `make histories` play 1,000."""
BASE = os.environ.get("KOORDLET_HISTORY_SEED", "1")
BASE_SEED = time.time_ns() // 1_000_000_000 if BASE == "time" else int(BASE)
"""Fixed by default: main must not fail for a defect that was there before."""
PARTS = 20
WORKERS = 2
SHRINK_S = 20.0
MEASURED_FROM = 200
"""With fewer histories, by KOORDLET_HISTORIES, a rare kind of event may not come."""
EVENTS = (
    "writes", "overwrites", "conflicts", "poked", "poked by an agent", "vanished", "killed",
    "killed at a write", "killed in a restore", "restores", "settled", "faults that struck",
    "outcome written", "outcome restored", "outcome refused", "outcome unsupported",
    "outcome gone", "outcome conflict", "eviction evicting", "eviction evicted", "restore restored",
    "restore gone", "restore foreign",
    "files of several wants", "outcome outvoted", "decided again", "traffic written",
    "traffic restored", "traffic refused", "traffic unsupported", "hidden", "renamed",
    "made anew", "paused",
    "counted apart", "counted by others",
)  # fmt: skip
"""What must have come about, so that the histories are about something."""

COUNTS: Counter[str] = Counter()

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("histories")]


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    context = get_context("forkserver")
    with ProcessPoolExecutor(WORKERS, mp_context=context, initializer=_prepare) as executor:
        yield executor


def _prepare() -> None:
    quiet()
    gc.freeze()
    os.nice(10)  # those who test the real machine beside it go first
    gc.set_threshold(100_000, 50, 1000)  # collecting as often as usual is a fifth of the time


def _play(seed: int) -> tuple[dict[str, int], str]:
    """What happened how often, and what was found, with the command that repeats it."""
    try:
        return play(seed), ""
    except Exception:
        found = traceback.format_exc()
        steps = shrink(seed, generate(seed), limit_s=SHRINK_S)
        return {}, f"history {seed}:\n{found}\nrepeat it by\n{command(seed, steps)}\n"


@pytest.mark.parametrize("part", range(PARTS))
def test_invariants_hold_over_random_histories(part: int, pool: ProcessPoolExecutor) -> None:
    first = BASE_SEED + part * HISTORIES // PARTS
    last = BASE_SEED + (part + 1) * HISTORIES // PARTS
    print(f"histories {first} to {last - 1}")
    results = list(pool.map(_play, range(first, last), chunksize=5))
    for counts, _ in results:
        COUNTS.update(counts)
    wrong = [found for _, found in results if found]
    assert not wrong, f"{len(wrong)} of {last - first} histories:\n" + "\n".join(wrong[:5])


def test_everything_came_about_in_them() -> None:
    if HISTORIES < MEASURED_FROM or not COUNTS:
        pytest.skip(f"fewer than {MEASURED_FROM} histories were played")
    for name, number in sorted(COUNTS.items()):
        print(f"{number:9} {name}")
    wanted = (*(f"step {kind}" for kind in KINDS), *EVENTS)
    assert [name for name in wanted if not COUNTS[name]] == []
