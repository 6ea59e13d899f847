"""The real host, and cgroups to try things in."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import Layout, detect
from koordlet.kernel.linux import LinuxHost
from tests.controllers import passed_on

_number = itertools.count()


@pytest.fixture
def linux() -> LinuxHost:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    return LinuxHost()


@pytest.fixture
def layout(linux: LinuxHost) -> Iterator[Layout]:
    """Of this host; the root of a v2 hierarchy passes its controllers on meanwhile."""
    found = detect(linux)
    with passed_on(linux, found.v2):
        yield found


@pytest.fixture
def cgroups(linux: LinuxHost, layout: Layout) -> Cgroups:
    return Cgroups(linux, layout)


@pytest.fixture
def cgroup(layout: Layout) -> Iterator[str]:
    """A new cgroup in every hierarchy, removed with all below it."""
    name = f"koordlet-test-{os.getpid()}-{next(_number)}"
    roots = [Path(root) for root in layout.roots]
    try:
        for root in roots:
            (root / name).mkdir()
        yield name
    finally:
        for root in roots:
            if (root / name).exists():
                inner = [path for path in (root / name).rglob("*") if path.is_dir()]
                for path in sorted(inner, reverse=True):
                    path.rmdir()
                (root / name).rmdir()
