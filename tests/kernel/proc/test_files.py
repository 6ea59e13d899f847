"""Readings of procfs, on golden text and on this machine."""

from __future__ import annotations

import pytest

from koordlet.kernel.cgroup.conversions import PAGE_BYTES, USER_HZ
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.parse import ParseError
from koordlet.kernel.proc import files as proc
from tests.kernel.dict_host import DictHost

STAT = "42 (a b) c) R 1 1 1 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 7 0 127693 3133440 350 0\n"


def fake(stat: str = STAT) -> DictHost:
    return DictHost(
        {
            "/proc/self/stat": stat,
            "/proc/self/statm": "765 350 200 5 0 100 0\n",
            "/proc/self/fd/0": "",
            "/proc/self/fd/7": "",
            "/proc/sys/kernel/random/boot_id": "4eb1e937-9b2a\n",
        }
    )


def test_self_usage_with_a_hostile_command_name() -> None:
    used = proc.self_usage(fake())
    assert used == (300 / USER_HZ, 350 * PAGE_BYTES, 2, 7)


def test_boot_id() -> None:
    assert proc.boot_id(fake()) == "4eb1e937-9b2a"


@pytest.mark.parametrize("stat", ["", "42 (x) R 1", "42 (x) R" + " x" * 30])
def test_nonsense_is_a_parse_error(stat: str) -> None:
    with pytest.raises(ParseError, match="/proc/self/stat"):
        proc.self_usage(fake(stat))


def test_this_machine() -> None:
    host = LinuxHost()
    used = proc.self_usage(host)
    assert used.rss_bytes > 1 << 20 and used.open_files >= 3 and used.threads >= 1
    machine = proc.memory(host)
    assert machine.available_bytes is not None
    assert 0 < machine.available_bytes <= machine.total_bytes


@pytest.mark.parametrize("comm", ["tar", ") R 1 (", "a b\\c"])
def test_name_and_time_of_a_process_whatever_its_name_is(comm: str) -> None:
    line = f"7 ({comm}) S 1 7 7 0 -1 4194560 1 0 0 0 150 25 9 9 20 0 1 0 99"
    assert proc.process_ticks(DictHost({"/proc/7/stat": line}), 7) == (comm, 175)
    with pytest.raises(ParseError):
        proc.process_ticks(DictHost({"/proc/7/stat": f"7 ({comm}) S 1"}), 7)
