"""Counters of the hardware and of cgroups, tried one each."""

from __future__ import annotations

import errno

from koordlet.kernel.cgroup.cgroups import enabling
from koordlet.kernel.perf.events import CPU_CLOCK, directory_of
from koordlet.kernel.perf.pmu import try_pmu
from koordlet.kernel.probe.scratch import NotHere, Scratch
from koordlet.kernel.topology import online_cpus


def pmu(scratch: Scratch) -> str:
    """Cycles and instructions of whatever runs on one CPU."""
    found = try_pmu(scratch.host.perf(), _cpu(scratch))
    if found.error is None:
        return f"perf_event_open counts {found.counts}"
    raise NotHere(found.why, found.remedy)


def perf_cgroup(scratch: Scratch) -> str:
    """A clock of the scratch cgroup, which needs no hardware."""
    layout = scratch.cgroups.layout
    path = directory_of(layout, scratch.name)
    if path is None:
        why = "neither cgroup v2 nor the v1 controller perf_event is mounted"
        raise NotHere(why, "mount -t cgroup -o perf_event perf_event /sys/fs/cgroup/perf_event")
    counters = scratch.host.perf()
    directory = counters.directory(path)
    try:
        counters.close(counters.open(CPU_CLOCK, _cpu(scratch), cgroup=directory))
    except OSError as error:
        raise _refused(error, path, layout.v2) from error
    finally:
        counters.close(directory)
    return f"perf_event_open counted in {path}"


def _refused(error: OSError, path: str, v2: str | None) -> Exception:
    """ENOENT: the kernel makes the implicit controller perf_event of v2 with the first controller
    that the root passes on. EINVAL: built without CONFIG_CGROUP_PERF."""
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    why = f"{error.filename} of {path}: {name} ({error.strerror})"
    if error.errno == errno.ENOENT and v2 is not None and path.startswith(v2):
        return NotHere(why, enabling("cpu", f"{v2}/cgroup.subtree_control"))
    if error.errno == errno.EINVAL:
        return NotHere(why, "use a kernel with CONFIG_CGROUP_PERF")
    return NotHere(why)


def _cpu(scratch: Scratch) -> int:
    return min(online_cpus(scratch.host, scratch.sys_root))
