"""Figures of the time-series store: append, queries, bytes, memory, a day in fast-forward.

    python bench/tsdb.py            # full size: 600 containers x 12 series
    python bench/tsdb.py --smoke    # a minute's worth, to see that it runs

Prints a table; judges nothing. Times are the best of several runs, because the machine is shared.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from koordlet.decision.metrics import Aggregate
from koordlet.tsdb import Store

START_MS = 1_700_000_000_000


def noisy_cpu(rng: random.Random) -> Iterator[float]:
    """A busy container: a random walk with 10 % of noise on top."""
    level = rng.uniform(0.05, 3.0)
    while True:
        level = max(0.001, level + rng.gauss(0, 0.02))
        yield max(0.0, level * (1 + rng.gauss(0, 0.1)))


def idle_cpu(rng: random.Random) -> Iterator[float]:
    """A container that wakes for a moment now and then."""
    while True:
        yield rng.uniform(0.001, 0.01) if rng.random() < 0.1 else 0.0


def memory(rng: random.Random) -> Iterator[float]:
    """Bytes in whole pages; changes in one of ten seconds."""
    pages = rng.randrange(1 << 14, 1 << 22)
    while True:
        if rng.random() < 0.1:
            pages = max(1, pages + rng.randrange(-200, 260))
        yield float(pages * 4096)


def throttled(rng: random.Random) -> Iterator[float]:
    while True:
        yield rng.random() * 0.3 if rng.random() < 0.03 else 0.0


def pressure(rng: random.Random) -> Iterator[float]:
    """PSI avg10: two decimals, recomputed each 2 s, mostly nothing."""
    level = 0.0
    while True:
        level = round(level * 0.82 + (rng.uniform(0, 10) if rng.random() < 0.03 else 0.0), 2)
        yield level
        yield level


def constant(rng: random.Random) -> Iterator[float]:
    value = float(rng.randrange(2))
    while True:
        yield value


MODELS: tuple[tuple[str, Callable[[random.Random], Iterator[float]]], ...] = (
    ("container_cpu_usage", noisy_cpu),
    ("container_memory_usage", memory),
    ("container_memory_usage_with_page_cache", memory),
    ("container_cpu_throttled", throttled),
    *((f"container_psi_{name}", pressure) for name in ("cs", "cf", "ms", "mf", "is", "if")),
    ("container_psi_cpu_full_supported", constant),
    ("pod_cpu_usage", idle_cpu),
)


class Load:
    """Rounds for ``containers`` containers. Values repeat after ``period`` rounds, so that
    making them is not what is measured."""

    def __init__(self, store: Store, containers: int, period: int, seed: int = 1) -> None:
        rng = random.Random(seed)
        self.ids: list[int] = []
        columns = []
        for _ in range(containers):
            labels = (("container_id", f"containerd://{rng.randbytes(32).hex()}"),)
            for kind, model in MODELS:
                self.ids.append(store.series(kind, labels))
                columns.append(list(islice(model(rng), period)))
        self.rounds = list(zip(*columns, strict=True))
        self.now_ms = START_MS

    def append(self, store: Store) -> None:
        values = self.rounds[self.now_ms // 1000 % len(self.rounds)]
        store.append(self.now_ms, self.ids, values)
        self.now_ms += 1000


def best_ms(action: Callable[[], object], runs: int) -> float:
    best = float("inf")
    for _ in range(runs):
        begin = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - begin)
    return best * 1000


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def show(name: str, value: str, goal: str = "") -> None:
    print(f"{name:<58}{value:>16}{goal:>14}", flush=True)


def full_node(directory: str, containers: int, seconds: int, runs: int) -> None:
    store = Store(directory)
    load = Load(store, containers, seconds)
    cut = []
    for second in range(seconds):
        load.append(store)
        if second % 30 == 0:
            begin = time.thread_time()
            store.maintain(load.now_ms)
            cut.append(time.thread_time() - begin)
    store.maintain(load.now_ms)
    cpu = load.ids[:: len(MODELS)]
    idle = load.ids[len(MODELS) - 1 :: len(MODELS)]
    rounds = f"{containers} x {len(MODELS)}"
    show(
        f"append a round of {rounds}", f"{best_ms(lambda: load.append(store), runs):.2f} ms", "1 ms"
    )
    end = load.now_ms - 1000

    def p95(ids: list[int]) -> Callable[[], object]:
        return lambda: store.aggregate_each(ids, end - 300_000, end, Aggregate.P95)

    show(f"p95 over 5 min, each of {containers} busy", f"{best_ms(p95(cpu), runs):.2f} ms", "10 ms")
    show(f"p95 over 5 min, each of {containers} idle", f"{best_ms(p95(idle), runs):.2f} ms")
    one = cpu[0]
    show(
        "last of one series", f"{best_ms(lambda: store.last(one, end - 2000), runs) * 1000:.1f} us"
    )
    pooled = best_ms(lambda: store.aggregate([one], end - 60_000, end, Aggregate.AVG), runs)
    show("avg over 60 s of one series", f"{pooled * 1000:.1f} us")
    if len(cut) > 1:
        show("write half a minute, CPU", f"{min(cut[1:]) * 1000:.1f} ms")
    store.flush(load.now_ms)
    samples = (load.now_ms - START_MS) // 1000 * len(load.ids)
    size = store.status().bytes_on_disk
    show(f"bytes a sample on disk, {rounds}", f"{size / samples:.2f} B", "2 B")
    begin = time.perf_counter()
    again = Store(directory)
    show(f"open {size >> 10} KiB, hot window filled", f"{time.perf_counter() - begin:.2f} s", "2 s")
    assert again.status().damage_count == 0
    grow_to(directory, 100 << 20 if runs > 1 else 4 * size)
    begin = time.perf_counter()
    size = Store(directory).status().bytes_on_disk
    show(f"open {size >> 20} MiB, hot window filled", f"{time.perf_counter() - begin:.2f} s", "2 s")


def grow_to(directory: str, size: int) -> None:
    """Copies of the segments there are, under higher numbers."""
    names = sorted(os.listdir(directory))
    here = sum(os.path.getsize(f"{directory}/{name}") for name in names)
    number = len(names)
    for copy in range(1, size // here):
        for name in names:
            number += 1
            shutil.copyfile(f"{directory}/{name}", f"{directory}/full-{number + copy:08d}.kts")


def bytes_by_model(directory: str, columns: int, seconds: int) -> None:
    for kind, model in MODELS[:5]:
        store = Store(f"{directory}/{kind}")
        rng = random.Random(2)
        ids = [store.series(kind, (("container_id", str(n)),)) for n in range(columns)]
        sources = [model(rng) for _ in ids]
        for second in range(seconds):
            values = [next(source) for source in sources]
            store.append(START_MS + second * 1000, ids, values)
            store.maintain(START_MS + second * 1000)
        store.close()
        size = store.status().bytes_on_disk
        show(f"  {kind}", f"{size / columns / seconds:.2f} B")


def memory_per_series(containers: int) -> None:
    """The hot window's own bytes, and what else a series costs (labels, dictionary entries)."""
    before = rss_bytes()
    store = Store(None)
    ids = [
        store.series(kind, (("container_id", f"containerd://{number:064x}"),))
        for number in range(containers)
        for kind, _ in MODELS
    ]
    store.append(START_MS, ids, [0.0] * len(ids))
    each = (rss_bytes() - before) / len(ids)
    own = store.status().bytes_in_memory / len(ids)
    show("memory per series, hot window of 300 s", f"{each:.0f} B")
    show("  of it samples", f"{own:.0f} B")


def a_day(directory: str, containers: int, seconds: int) -> None:
    """Fast-forward with pods that come and go, so that columns and dictionaries turn over."""
    store = Store(directory)
    load = Load(store, containers, 600)
    width = len(MODELS)
    marks = []
    begin = time.perf_counter()
    for second in range(seconds):
        load.append(store)
        if second % 30 == 0:
            store.maintain(load.now_ms)
        if second % 120 == 0:  # one container is replaced
            slot = second // 120 % containers * width
            for offset, (kind, _) in enumerate(MODELS):
                store.release(load.ids[slot + offset])
                label = (("container_id", f"{second:064x}"),)
                load.ids[slot + offset] = store.series(kind, label)
        if second % max(seconds // 8, 1) == seconds // 16:
            marks.append((rss_bytes(), descriptors()))
    took = time.perf_counter() - begin
    series = containers * width
    show(f"{seconds} rounds of {series} series, one container in 2 min new", f"{took:.1f} s")
    show("  RSS at eight moments, MiB", " ".join(f"{rss / (1 << 20):.1f}" for rss, _ in marks))
    show("  descriptors at eight moments", " ".join(str(count) for _, count in marks))
    status = store.status()
    show("  on disk", f"{status.bytes_on_disk / (1 << 20):.1f} MiB")
    show("  files", str(status.segments))
    end = load.now_ms - 1000
    id_ = load.ids[0]
    for hours in (1, 12, 24):
        asked = partial(store.aggregate, [id_], end - hours * 3_600_000, end, Aggregate.P95)
        spent = best_ms(asked, 1)
        show(f"  p95 over {hours} h of one series, from segments", f"{spent:.0f} ms")
    begin = time.perf_counter()
    Store(directory)
    show("  open with all of it", f"{time.perf_counter() - begin:.2f} s", "2 s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--smoke", action="store_true", help="small sizes: seconds, not minutes")
    smoke = parser.parse_args().smoke
    directory = tempfile.mkdtemp(prefix="koordlet-bench-tsdb-")
    show("what", "measured", "goal")
    try:
        memory_per_series(600)
        # The day comes first: later it would hide in memory that the others gave back.
        a_day(f"{directory}/day", 2 if smoke else 17, 1200 if smoke else 86_400)
        full_node(
            f"{directory}/full", 20 if smoke else 600, 90 if smoke else 420, 1 if smoke else 5
        )
        bytes_by_model(f"{directory}/model", 16 if smoke else 128, 60 if smoke else 300)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
