"""Files that stay open between ticks: read fresh, never of a cgroup that has gone, bounded."""

from __future__ import annotations

import errno

import pytest

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.kept import KeptFiles
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.parse import ParseError
from tests.kernel.dict_host import DictHost

QUOTA, PERIOD = Resource.CPU_QUOTA_US, Resource.CPU_PERIOD_US
V2 = "/sys/fs/cgroup"
PURE = Layout({}, V2, frozenset({"cpu"}))


def kept(*cgroups: str, limit: int = 100) -> tuple[KeptFiles, DictHost]:
    host = DictHost({f"{V2}/{cgroup}/cpu.max": "50000 100000" for cgroup in cgroups})
    return KeptFiles(host, Cgroups(host, PURE), limit), host


def open_paths(host: DictHost) -> list[str]:
    return [file.path for file in host.opened if not file.closed]


def test_quota_and_period_are_read_fresh_from_one_open_file() -> None:
    files, host = kept("a")
    assert (files.read("a", QUOTA), files.read("a", PERIOD)) == (50_000, 100_000)
    host.files[f"{V2}/a/cpu.max"] = b"max 20000\n"
    assert (files.read("a", QUOTA), files.read("a", PERIOD)) == (-1, 20_000)
    assert len(host.opened) == len(files) == 1


def test_a_cgroup_made_anew_is_read_and_opened_anew() -> None:
    files, host = kept("a")
    files.read("a", QUOTA)
    host.make_anew(f"{V2}/a/cpu.max", "70000 100000")
    assert [files.read("a", QUOTA) for _ in range(3)] == [70_000] * 3
    assert len(open_paths(host)) == 1


def test_a_cgroup_that_has_gone_raises_as_the_plain_way_and_leaves_nothing_open() -> None:
    files, host = kept("a")
    files.read("a", QUOTA), files.read("a", PERIOD)
    host.remove(f"{V2}/a/cpu.max")
    with pytest.raises(FileNotFoundError):
        files.read("a", QUOTA)
    assert len(files) == 0 and open_paths(host) == []
    with pytest.raises(FileNotFoundError):
        files.read("a", PERIOD)


@pytest.mark.parametrize("text", [b"junk 100000\n", b"50000 10"])
def test_no_value_is_made_of_what_is_none(text: bytes) -> None:
    files, host = kept("a")
    files.read("a", QUOTA)
    host.files[f"{V2}/a/cpu.max"] = text
    with pytest.raises((ParseError, OSError)) as refused:
        files.read("a", QUOTA)
    assert isinstance(refused.value, ParseError) or refused.value.errno == errno.EIO


def test_beyond_the_limit_files_are_read_and_closed() -> None:
    files, host = kept("a", "b", "c", limit=2)
    for _ in range(2):
        assert [files.read(cgroup, QUOTA) for cgroup in "abc"] == [50_000] * 3
    assert open_paths(host) == [f"{V2}/a/cpu.max", f"{V2}/b/cpu.max"]


def test_closed_files_are_opened_anew() -> None:
    files, host = kept("a", "b")
    files.read("a", QUOTA)
    files.close()
    assert open_paths(host) == []
    assert files.read("a", QUOTA) == 50_000 and len(files) == 1


def test_where_no_controller_has_the_file() -> None:
    host = DictHost({})
    files = KeptFiles(host, Cgroups(host, Layout({}, V2, frozenset({"memory"}))))
    with pytest.raises(Unsupported):
        files.read("a", QUOTA)
