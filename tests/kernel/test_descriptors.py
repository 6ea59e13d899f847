"""Files kept open: closed when gone, opened anew, never more than allowed."""

from __future__ import annotations

import errno

import pytest
from koordlet_fakefs import FakeHost

from koordlet.kernel.descriptors import Descriptors
from tests.kernel.dict_host import DictHost


def open_paths(host: DictHost) -> list[str]:
    return [file.path for file in host.opened if not file.closed]


def test_a_file_is_opened_once_and_read_fresh() -> None:
    host = DictHost({"/a/x": "1"})
    kept = Descriptors(host)
    assert kept.read("/a/x") == b"1\n"
    host.files["/a/x"] = b"2"
    assert kept.read("/a/x") == b"2"
    assert len(host.opened) == 1


def test_a_cgroup_made_again_is_opened_again() -> None:
    host = DictHost({"/a/x": "1"})
    kept = Descriptors(host)
    kept.read("/a/x")
    host.make_anew("/a/x", "new")
    assert kept.read("/a/x") == b"new\n"
    assert len(host.opened) == 2 and len(open_paths(host)) == 1


def test_a_cgroup_that_is_gone_leaves_no_descriptor() -> None:
    host = DictHost({"/a/x": "1"})
    kept = Descriptors(host)
    kept.read("/a/x")
    host.remove("/a/x")
    with pytest.raises(FileNotFoundError):
        kept.read("/a/x")
    assert len(kept) == 0 and open_paths(host) == []


def test_drop_takes_the_directory_and_nothing_beside_it() -> None:
    host = DictHost({"/a/x": "1", "/a/b/x": "2", "/ab/x": "3"})
    kept = Descriptors(host)
    for path in host.files:
        kept.read(path)
    kept.drop("/a")
    assert open_paths(host) == ["/ab/x"]
    kept.close()
    assert open_paths(host) == []


def test_beyond_the_limit_files_are_read_and_closed() -> None:
    host = DictHost({f"/{i}": str(i) for i in range(5)})
    kept = Descriptors(host, limit=2)
    for _ in range(2):
        assert [kept.read(path) for path in host.files] == [b"%d\n" % i for i in range(5)]
    assert len(kept) == 2 and open_paths(host) == ["/0", "/1"]


def test_what_is_read_once_stays_closed_and_what_is_open_is_used() -> None:
    host = FakeHost("hybrid")
    files = Descriptors(host)
    path = "/sys/fs/cgroup/cpuacct/cpuacct.usage"
    assert files.read_once(path) == files.read_once(path)
    assert (len(files), len(host.open_files)) == (0, 0)
    files.read(path)
    opens = host.faults.before(path, lambda: None, op="open", times=None)
    files.read_once(path)
    assert (len(files), opens.hits) == (1, 0)


def test_a_read_that_fails_leaves_nothing_open() -> None:
    host = FakeHost("hybrid")
    host.faults.add("*cpuacct.usage", op="read", errno=errno.EIO)
    with pytest.raises(OSError):
        Descriptors(host).read_once("/sys/fs/cgroup/cpuacct/cpuacct.usage")
    assert not host.open_files
