"""Taking memory back on demand, on this kernel."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.probe.probe import probe
from koordlet.kernel.reclaim import FILE, reclaim

MIB = 1 << 20
_READ = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for _ in range(32): os.write(fd, bytes(1 << 20))
os.fsync(fd)
print("read", flush=True)
time.sleep(60)
"""


def _has(layout: Layout) -> bool:
    return layout.v2 is not None and "memory" in layout.v2_controllers


@pytest.mark.kernel
def test_the_probe_says_what_the_kernel_says(linux: LinuxHost, layout: Layout) -> None:
    found = {c.feature: c for c in asyncio.run(probe(linux, layout))}[FILE]
    if not _has(layout):
        assert not found.supported and "cgroup v2" in found.why and found.cost
    else:
        root = Path(layout.v2 or "")
        assert found.supported == any(root.glob(f"*/{FILE}")), found.why


@pytest.mark.kernel
def test_without_it_that_is_said(linux: LinuxHost, layout: Layout, cgroup: str) -> None:
    if _has(layout):
        pytest.skip("this host has the memory controller of cgroup v2")
    with pytest.raises(FileNotFoundError, match=r"memory\.reclaim is a file of cgroup v2"):
        reclaim(linux, layout, cgroup, MIB)


@pytest.mark.kernel
def test_page_cache_goes(
    linux: LinuxHost, layout: Layout, cgroups: Cgroups, cgroup: str, tmp_path: Path
) -> None:
    if not _has(layout):
        pytest.skip("needs the memory controller of cgroup v2; this host has it on v1")
    directory = Path(layout.v2 or "") / cgroup
    if not (directory / FILE).exists():
        pytest.skip(f"this kernel has no {FILE} (Linux 5.19)")
    process = subprocess.Popen(
        [sys.executable, "-c", _READ, str(tmp_path / "file")],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: (directory / "cgroup.procs").write_text(str(os.getpid())),
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"read\n"
        before = int((directory / "memory.current").read_text())
        reclaim(linux, layout, cgroup, 16 * MIB)
        assert int((directory / "memory.current").read_text()) < before - 8 * MIB
        assert not reclaim(linux, layout, cgroup, 1 << 40)
    finally:
        process.kill()
        process.wait()
