"""How each feature is tried. An attempt returns what was done, or raises NotHere, Unsupported,
OSError or ParseError: that is the reason why the feature is missing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable
from typing import Any

from koordlet.decision.resctrl import INTEL, PRESENT, monitor_group
from koordlet.decision.resource import ABSENT, Resource, Value
from koordlet.kernel import parse, resctrl, resctrl_info, resctrl_monitor
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.cgroup.forms import parse_int
from koordlet.kernel.host_files import TERWAY_DIR, HostFiles, require_features
from koordlet.kernel.probe.scratch import CHILD, NotHere, Scratch
from koordlet.kernel.proc.core_sched import try_cookie
from koordlet.kernel.proc.oom_score import HIGHEST, LOWEST, MAY_LOWER
from koordlet.kernel.reclaim import FILE, NEEDS_V2
from koordlet.protocol.cpuset import parse_cpulist

Attempt = Callable[[Scratch], str]

_BYTES = 64 << 20
_INOTIFY_WAIT_S = 2.0
"""A machine that is busy, or emulated, takes its time."""


def knob(resource: Resource, *values: Value) -> Attempt:
    """Write each value and read it back."""

    def attempt(scratch: Scratch) -> str:
        return write(scratch, resource, *values)

    return attempt


def write(scratch: Scratch, resource: Resource, *values: Value) -> str:
    path = scratch.file(resource)
    for value in values:
        scratch.cgroups.write(scratch.name, resource, value)
        found = scratch.cgroups.read(scratch.name, resource)
        if not scratch.cgroups.equal(resource, value, found):
            raise NotHere(f"{path} reads {found!r} after {value!r} was written")
    return f"wrote {', '.join(map(repr, values))} to {path} and read it back"


def plain(path: str, scratch: Scratch, *values: bytes) -> str:
    """The same for a file that is no resource."""
    for value in values:
        scratch.host.write(path, value)
        found = scratch.host.read(path).strip()
        if found != value:
            raise NotHere(f"{path} reads {found!r} after {value!r} was written")
    return f"wrote {', '.join(v.decode() for v in values)} to {path} and read it back"


def present(resource: Resource) -> Attempt:
    """Read only, whatever it holds."""
    return readable(resource, lambda data, path: None)


def readable(resource: Resource, parser: Callable[[bytes, str], Any]) -> Attempt:
    def attempt(scratch: Scratch) -> str:
        path = scratch.file(resource)
        parser(scratch.cgroups.read_raw(scratch.name, resource), path)
        return f"read {path}"

    return attempt


def throttling(scratch: Scratch) -> str:
    """v2 prints the lines about periods only where the group has the controller."""
    scratch.cgroups.read(scratch.name, Resource.CPU_QUOTA_US)
    return readable(Resource.CPU_STAT, parse.cpu_stat)(scratch)


def burst(scratch: Scratch) -> str:
    """The kernel refuses a burst above the quota, so a quota comes first."""
    write(scratch, Resource.CPU_QUOTA_US, 50_000)
    return write(scratch, Resource.CPU_BURST_US, 10_000, 0)


def idle(scratch: Scratch) -> str:
    # Back to 0: cpu.shares of an idle cgroup cannot be written.
    return write(scratch, Resource.CPU_IDLE, 1, 0)


def group_identity(scratch: Scratch) -> str:
    text = write(scratch, Resource.CPU_BVT_WARP_NS, 2, -1, 0)
    files = host_files(scratch)
    with contextlib.suppress(Unsupported):  # where there is no switch, it is always on
        if files.read("", Resource.SYSCTL_GROUP_IDENTITY) == 0:
            path = files.path("", Resource.SYSCTL_GROUP_IDENTITY)
            text += f"; {path} is 0 and has to be 1 before that has an effect"
    return text


def cpuset(scratch: Scratch) -> str:
    """One CPU of those the root has. v1 wants memory nodes too before a task can enter."""
    root = str(scratch.cgroups.read("", Resource.CPUSET_CPUS_EFFECTIVE))
    if "cpuset" in scratch.cgroups.layout.v1:
        mems = scratch.cgroups.read("", Resource.CPUSET_MEMS)
        write(scratch, Resource.CPUSET_MEMS, mems)
    return write(scratch, Resource.CPUSET_CPUS, root, str(min(parse_cpulist(root))))


def device_knob(resource: Resource, number: int) -> Attempt:
    """Set for one block device, then cleared."""

    def attempt(scratch: Scratch) -> str:
        return write(scratch, resource, f"{_block_device(scratch)} {number}", "")

    return attempt


def _block_device(scratch: Scratch) -> str:
    """``MAJ:MIN`` of a disk, a real one before a virtual one."""
    base = f"{scratch.sys_root}/block"
    # Entries are symbolic links.
    names = sorted(
        scratch.host.listdir(base), key=lambda n: (n.startswith(("loop", "ram", "z")), n)
    )
    if not names:
        raise NotHere(f"{base} lists no block device to try it on")
    return scratch.host.read(f"{base}/{names[0]}/dev").decode().strip()


def root_only(resource: Resource) -> Attempt:
    """A file of the root cgroup: read, not written, because it holds for the whole machine."""

    def attempt(scratch: Scratch) -> str:
        path = scratch.cgroups.path("", resource)
        scratch.cgroups.read("", resource)
        return f"read {path} (not written: it holds for the whole machine)"

    return attempt


def pids_max(scratch: Scratch) -> str:
    return plain(scratch.of_controller("pids", "pids.max"), scratch, b"64", b"max")


def kill(scratch: Scratch) -> str:
    path = scratch.unified("cgroup.kill")
    scratch.host.write(path, b"1")
    return f"wrote 1 to {path} of an empty cgroup"


def freeze(scratch: Scratch) -> str:
    layout = scratch.cgroups.layout
    if "freezer" in layout.v1:
        path = scratch.of_controller("freezer", "freezer.state")
        return plain(path, scratch, b"FROZEN", b"THAWED")
    return plain(scratch.unified("cgroup.freeze"), scratch, b"1", b"0")


def node_pressure(scratch: Scratch) -> str:
    for name in ("cpu", "memory", "io"):
        path = f"{scratch.proc_root}/pressure/{name}"
        parse.pressure(scratch.host.read(path), path)
    return f"read {scratch.proc_root}/pressure/{{cpu,memory,io}}"


def cgroup_pressure(scratch: Scratch) -> str:
    paths = []
    for resource in (Resource.CPU_PRESSURE, Resource.MEMORY_PRESSURE, Resource.IO_PRESSURE):
        paths.append(scratch.file(resource))
        parse.pressure(scratch.cgroups.read_raw(scratch.name, resource), paths[-1])
    return f"read {', '.join(paths)}"


def trigger(window_us: int) -> Attempt:
    """Arm a trigger with a tenth of the window as its threshold, and disarm it."""

    def attempt(scratch: Scratch) -> str:
        path = f"{scratch.proc_root}/pressure/cpu"
        text = f"some {window_us // 10} {window_us}"
        scratch.host.psi_trigger(path, text, _nothing).close()
        return f"armed {text!r} on {path}"

    return attempt


def _nothing() -> None:
    """The trigger is disarmed before it can fire."""


async def inotify(scratch: Scratch) -> str:
    """Watch the scratch cgroup, make a child in it, and see the event."""
    directory = scratch.reference_directory()
    seen = asyncio.Event()

    def on_event(where: str, child: str) -> None:
        if (where, child) == (directory, CHILD):
            seen.set()

    watch = scratch.host.watch_directories(on_event)
    try:
        watch.add(directory)
        scratch.host.mkdir(f"{directory}/{CHILD}")
        await asyncio.wait_for(seen.wait(), _INOTIFY_WAIT_S)
    except TimeoutError:
        text = f"no event within {_INOTIFY_WAIT_S:g} s for a cgroup made in {directory}"
        raise NotHere(text, for_now=True) from None
    finally:
        watch.close()
    return f"saw a cgroup being made in {directory}"


def net_cls(scratch: Scratch) -> str:
    return write(scratch, Resource.NET_CLS_CLASSID, 0x10001)


def memory_bytes(resource: Resource) -> Attempt:
    return knob(resource, _BYTES)


def memory_reclaim(scratch: Scratch) -> str:
    """Nothing is in the scratch cgroup, so of nothing."""
    if "memory" not in scratch.cgroups.layout.v2_controllers:
        raise NotHere(NEEDS_V2)
    path = scratch.of_controller("memory", FILE)
    scratch.host.write(path, b"0")
    return f"wrote 0 to {path}"


def host_files(scratch: Scratch) -> HostFiles:
    return HostFiles(
        scratch.host,
        proc_root=scratch.proc_root,
        sys_root=scratch.sys_root,
        terway_dir=TERWAY_DIR,
    )


def switch(resource: Resource) -> Attempt:
    """Write what it holds: another value would hold for the whole machine."""

    def attempt(scratch: Scratch) -> str:
        files = host_files(scratch)
        path, data = files.path("", resource), files.read_raw("", resource)
        files.write_raw("", resource, data)
        return f"wrote {data.decode().strip()}, which it held, to {path}"

    return attempt


def terway(scratch: Scratch) -> str:
    host_files(scratch).path("", Resource.TERWAY_GLOBAL)
    path = f"{TERWAY_DIR}/.koordlet-probe"
    scratch.host.replace(path, b"")
    scratch.host.unlink(path)
    return f"made {path} and removed it"


_SMT_REMEDIES = {
    "off": "write on to {0}",
    "forceoff": "boot without nosmt",
    "notsupported": "switch hyperthreads on in the firmware, where the CPU has them",
}
"""Content of ``smt/control`` (Linux ``ABI/testing/sysfs-devices-system-cpu``) -> what to do."""


EXPELLER = "ID_ABSOLUTE_EXPEL"
"""Scheduler feature of Anolis kernels: whose group identity is high expels who has a low one from
the hyperthread beside (docs/reference/qos.md 7.2)."""


def core_sched(scratch: Scratch) -> str:
    try:
        try_cookie(scratch.host)
    except Unsupported as missing:
        path = f"{scratch.sys_root}/devices/system/cpu/smt/control"
        if "ENODEV" not in missing.why or not scratch.host.exists(path):
            raise
        state = scratch.host.read(path).decode().strip()
        remedy = _SMT_REMEDIES.get(state, "").format(path) or missing.remedy
        raise NotHere(f"{missing.why}; {path} is {state}", remedy) from missing
    return "prctl(PR_SCHED_CORE) told our own cookie"


def expeller(scratch: Scratch) -> str:
    path = host_files(scratch).path("", Resource.SCHED_FEATURES)
    require_features(scratch.host, path, EXPELLER)
    return f"{path} lists {EXPELLER}"


def oom_raise(scratch: Scratch) -> str:
    path, value = _own_score(scratch)
    if value == HIGHEST:
        return f"{path} is {value}, the highest; not tried"
    _try_score(scratch, path, value, value + 1)
    return f"raised {path} to {value + 1} and put {value} back"


def oom_lower(scratch: Scratch) -> str:
    """Below what a process started with: back down after a raise anybody may."""
    path, value = _own_score(scratch)
    if value == LOWEST:
        return f"{path} is {value}, the lowest; not tried"
    try:
        _try_score(scratch, path, value, value - 1)
    except PermissionError as error:
        text = f"{path}: {value - 1} was refused ({errno.errorcode[error.errno or errno.EACCES]})"
        raise NotHere(text, MAY_LOWER) from error
    return f"lowered {path} to {value - 1} and put {value} back"


def _own_score(scratch: Scratch) -> tuple[str, int]:
    path = f"{scratch.proc_root}/self/oom_score_adj"
    return path, parse_int(scratch.host.read(path))


def _try_score(scratch: Scratch, path: str, value: int, other: int) -> None:
    try:
        scratch.host.write(path, b"%d" % other)
    finally:
        scratch.host.write(path, b"%d" % value)


def allocation(line: str) -> Attempt:
    """Make a resctrl group, give it what the default group has, and remove it."""

    def attempt(scratch: Scratch) -> str:
        root = resctrl.mount_point(scratch.sys_root)
        _require_resctrl(scratch, root)
        schemata = f"{root}/schemata"
        allocated = resctrl.parse(scratch.host.read(schemata), schemata)
        lines = resctrl.L3_LINES if line == "L3" else (line,)
        mine = {key: value for key, value in allocated.items() if key[0] in lines}
        if not mine:
            raise NotHere(f"{schemata} has no line {line}")
        if resctrl.in_mbps(mine):
            why = f"{root} is mounted with -o mba_MBps: bandwidth is in MB/s, not in percent"
            raise NotHere(why, f"mount {root} without mba_MBps")
        groups = resctrl.ResctrlGroups(scratch.host, scratch.sys_root)
        group = scratch.name
        text = resctrl.format_schemata(mine)
        try:
            groups.write(group, Resource.RESCTRL_SCHEMATA, text)
        except OSError as error:
            if error.errno == errno.EBUSY:
                return f"{schemata} has a line {line}; at present {resctrl_monitor.IN_LIMBO}"
            if error.errno != errno.ENOSPC:
                raise
            return f"{schemata} has a line {line}; all groups there can be are in use"
        finally:
            groups.write(group, Resource.RESCTRL_SCHEMATA, ABSENT)
        return f"made {root}/{group} with {text.strip()} and removed it"

    return attempt


def monitoring(scratch: Scratch) -> str:
    """Make a monitor group in the default group, and remove it."""
    root = resctrl.mount_point(scratch.sys_root)
    _require_resctrl(scratch, root)
    what = resctrl_monitor.counting(scratch.host, scratch.sys_root)
    if not (what.caches and what.events):
        raise NotHere(f"{root}/info/L3_MON names nothing that the processor counts")
    here = resctrl_info.read_resctrl(scratch.host, scratch.sys_root, scratch.proc_root)
    text = f"counts {', '.join(what.events)}, {here.rmids} groups apart"
    if here.rmids_of_group is not None:
        text += f", at most {here.rmids_of_group} in and below one control group"
    if here.mbm_groups is not None:
        text += f", memory traffic of {here.mbm_groups}"
        text += " (mbm_assign_on_mkdir is 0: no new group gets a counter)" * (not here.mbm_on_mkdir)
    if here.vendor == INTEL and not set(what.events) & set(resctrl_monitor.TRAFFIC):
        text += " (memory traffic: some Intel CPUs want rdt=mbmtotal,mbmlocal at boot)"
    if what.changed:
        text += f" (not the usual traffic: {', '.join(what.changed)})"
    groups = resctrl_monitor.ResctrlMonitorGroups(scratch.host, scratch.sys_root)
    key = monitor_group("", scratch.name), Resource.RESCTRL_MONITOR_GROUP
    path = groups.path(*key)
    try:
        groups.write(*key, PRESENT)
    except Unsupported as full:
        return f"{root} {text}; {full.why}"
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return f"{root} {text}; at present {error.strerror}"
    finally:
        groups.write(*key, ABSENT)
    return f"made {path} and removed it; it {text}"


def _require_resctrl(scratch: Scratch, root: str) -> None:
    try:
        resctrl.require_mounted(scratch.host, root, Resource.RESCTRL_SCHEMATA)
    except Unsupported as missing:
        filesystems = f"{scratch.proc_root}/filesystems"
        if b"resctrl" in scratch.host.read(filesystems).split():
            why = f"{missing.why}; {filesystems} lists resctrl: it is not mounted"
            raise NotHere(why, missing.remedy) from missing
        why = f"{missing.why} and {filesystems} does not list resctrl"
        raise NotHere(why) from missing
