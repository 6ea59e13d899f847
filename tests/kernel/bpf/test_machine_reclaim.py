"""Who makes whom wait for memory where the machine itself has none left: in a guest alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from koordlet.collectors.stalls.shares import blamed, stalls_since
from koordlet.kernel.background import no_pause
from koordlet.kernel.bpf.stalls import MACHINE, BpfStalls
from koordlet.kernel.proc.files import memory
from tests.kernel.bpf.conftest import Loads
from tests.kernel.bpf.test_stalls import READ

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif("KOORDLET_GUEST" not in os.environ, reason="uses up the machine's memory"),
]
LEFT_BYTES = 400 << 20
TAKE = """
import mmap
def take(size):
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
"""
HOLD = """
held = take({size})
print("done", flush=True)
input()
"""
BURSTS = """
while True:
    take({size}).close()
"""
"""Faster than the kernel reclaims memory in the background."""


def test_who_takes_what_the_machine_has_left_is_blamed(
    everywhere: Loads, stalls: BpfStalls, on_disk: Path
) -> None:
    victim, antagonist, holder = (everywhere.group(name) for name in ("ls", "be", "holder"))
    victim_id, antagonist_id = (everywhere.id_of(group, "memory") for group in (victim, antagonist))
    available = memory(everywhere.linux).available_bytes
    assert available is not None
    everywhere.run(holder, TAKE + HOLD.format(size=available - LEFT_BYTES))
    assert everywhere.processes[-1].stdout is not None
    assert everywhere.processes[-1].stdout.readline() == b"done\n"
    everywhere.run(victim, READ.format(file=str(on_disk / "ls"), size=96 << 20, rest=0))
    everywhere.run(antagonist, TAKE + BURSTS.format(size=256 << 20))
    first, deadline = stalls.read(no_pause), time.monotonic() + 100
    while True:
        time.sleep(1)
        found = stalls_since(stalls.read(no_pause).memory, first.memory).get(MACHINE, {})
        print(found)
        if victim_id in found and found[victim_id].pages >= 64:
            break
        assert time.monotonic() < deadline, found
    assert found[antagonist_id].pages > found[victim_id].pages
    row = blamed({MACHINE: found})[victim_id]
    assert row[antagonist_id] == max(row.values())
