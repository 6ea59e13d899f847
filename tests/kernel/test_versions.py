"""Where kernels differ by their version: the fake is held to what was seen on 6.18 and on 7.2."""

from __future__ import annotations

import errno

import pytest
from koordlet_fakefs import FakeHost

OLD, NEW = "6.18.0-fake", "7.2.0-fake"
ROOT = "/sys/fs/cgroup"


@pytest.mark.parametrize(
    ("file", "text", "on_old", "on_new"),
    [
        ("io.max", "254:0 rbps=1", errno.EINVAL, "254:0 rbps=1 wbps=max riops=max wiops=max"),
        ("io.max", "254:0 rbps=0", errno.ERANGE, errno.ERANGE),
        ("io.max", "254:0 rbps=2", None, None),
        ("cpuset.cpus", "\n", errno.ENOSPC, ""),
        ("memory.max", "k", "0", errno.EINVAL),
        ("memory.max", "16E", "0", "max"),
        ("memory.max", "99999999999999999999999", None, "max"),
        ("memory.max", "1M", "1048576", "1048576"),
    ],
)
def test_what_a_version_takes(
    file: str, text: str, on_old: int | str | None, on_new: int | str | None
) -> None:
    """Says what the file holds then, or with what it is refused."""
    for release, expected in ((OLD, on_old), (NEW, on_new)):
        host = FakeHost("v2", kernel_release=release)
        path = f"{ROOT}/a/{file}"
        host.make_cgroup("a")
        if file == "cpuset.cpus":
            host.spawn("a")
            host.write(path, b"0")
        if isinstance(expected, int):
            with pytest.raises(OSError) as caught:
                host.write(path, text.encode())
            assert caught.value.errno == expected
            continue
        host.write(path, text.encode())
        if expected is not None:
            assert host.read(path).decode().strip() == expected
