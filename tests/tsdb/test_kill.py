"""kill -9 of a real writer: what was written more than a minute before is all there."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from koordlet.tsdb import Store

T0 = 1_700_000_400_000
SERIES = 150

# Lives a second in a millisecond, and tells each one it has appended.
WRITER = f"""
import sys
from koordlet.tsdb import Store
store = Store(sys.argv[1], hot_window_s=300)
ids = [store.series("k", (("id", str(n)),)) for n in range({SERIES})]
for second in range(100_000):
    now = {T0} + second * 1000
    store.append(now, ids, [float((second + n) % 4096) for n in range({SERIES})])
    store.maintain(now)
    print(second, flush=True)
"""


@pytest.mark.parametrize("seed", range(6))
def test_a_killed_writer_loses_at_most_a_minute(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        stop_at = rng.randrange(200, 1500)
        last = -1
        for line in child.stdout:
            last = int(line)
            if last >= stop_at:
                break
    finally:
        child.send_signal(signal.SIGKILL)
        rest, _ = child.communicate()
    last = max([last, *(int(line) for line in rest.split("\n") if line.isdigit())])
    store = Store(str(tmp_path), hot_window_s=300)
    assert store.status().mode == "disk"
    for number in rng.sample(range(SERIES), 5):
        points = store.points(store.series("k", (("id", str(number)),)), T0, T0 + 10**9)
        seconds = [(time - T0) // 1000 for time in points.times]
        assert seconds == list(range(len(seconds)))
        assert points.values.tolist() == [float((s + number) % 4096) for s in seconds]
        assert last - 60 <= seconds[-1] <= last + 1
