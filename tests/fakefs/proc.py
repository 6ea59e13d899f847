"""/proc: what the machine and its processes say about themselves, computed on read."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from koordlet_fakefs.cgroup import SELF_PID, Cgroup, Hierarchy
from koordlet_fakefs.machine import NS, Machine, Process
from koordlet_fakefs.parse import PAGE_BYTES, number_in, refuse, strip
from koordlet_fakefs.resources.account import USER_HZ, split_ns
from koordlet_fakefs.resources.memory import anon_bytes, file_bytes, rss_bytes
from koordlet_fakefs.resources.psi import RESOURCES, Pressure, parse_trigger
from koordlet_fakefs.resources.scheduler import Scheduler
from koordlet_fakefs.tree import Directory, Leaf, Link, ProcDirectory, add_directory, number_leaf

BOOT_ID = "6a1f0d3e-9d7c-4f0a-8a55-000000000001"
_TICK_NS = NS // USER_HZ


def _read_only(read: Callable[[], str]) -> Leaf:
    return Leaf(read, write_errno=errno.EIO)


def stat(machine: Machine, scheduler: Scheduler) -> str:
    """/proc/stat. Guest, steal, irq and iowait time are 0."""
    rows = []
    sums = [0, 0, 0]
    for cpu in sorted(machine.options.topology.online):
        busy = scheduler.busy_ns[cpu]
        user, system = split_ns(busy)
        ticks = [int(ns) // _TICK_NS for ns in (user, system, machine.now_ns - busy)]
        sums = [total + own for total, own in zip(sums, ticks, strict=True)]
        rows.append(f"cpu{cpu} {ticks[0]} 0 {ticks[1]} {ticks[2]} 0 0 0 0 0 0\n")
    boot = int(machine.options.start_time) - machine.options.uptime_s
    return (
        f"cpu  {sums[0]} 0 {sums[1]} {sums[2]} 0 0 0 0 0 0\n"
        + "".join(rows)
        + f"intr 0\nctxt {machine.now_ns // 1_000_000}\nbtime {boot}\n"
        f"processes {machine.forks}\nprocs_running {max(1, round(scheduler.running))}\n"
        "procs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n"
    )


def memory_values(machine: Machine) -> dict[str, int]:
    """Bytes: total, free, available, cached, anon."""
    hierarchy = machine.hierarchy_of("memory")
    anon = anon_bytes(hierarchy.root) if hierarchy else 0
    cached = file_bytes(hierarchy.root) if hierarchy else 0
    total = machine.options.memory_bytes
    free = max(0, total - machine.options.base_memory_bytes - anon - cached)
    return {
        "total": total,
        "free": free,
        "available": min(total, free + cached),
        "cached": cached,
        "anon": anon,
    }


def meminfo(machine: Machine) -> str:
    values = memory_values(machine)
    half = values["cached"] // 2
    fields = {
        "MemTotal": values["total"],
        "MemFree": values["free"],
        "MemAvailable": values["available"],
        "Buffers": 0,
        "Cached": values["cached"],
        "SwapCached": 0,
        "Active": values["cached"] - half,
        "Inactive": values["anon"] + half,
        "Active(anon)": 0,
        "Inactive(anon)": values["anon"],
        "Active(file)": values["cached"] - half,
        "Inactive(file)": half,
        "Unevictable": 0,
        "Mlocked": 0,
        "SwapTotal": 0,
        "SwapFree": 0,
        "Dirty": 0,
        "Writeback": 0,
        "AnonPages": values["anon"],
        "Mapped": 0,
        "Shmem": 0,
        "KReclaimable": 0,
        "Slab": 0,
        "SReclaimable": 0,
        "SUnreclaim": 0,
    }
    return "".join(f"{name + ':':<15} {size // 1024:>8} kB\n" for name, size in fields.items())


def cgroup_lines(machine: Machine, process: Process) -> str:
    """/proc/PID/cgroup, highest hierarchy number first."""
    groups = process.threads[process.pid].cgroups
    rows = sorted(groups.items(), key=lambda item: -item[0].number)
    return "".join(f"{h.number}:{h.label}:/{group.path}\n" for h, group in rows)


def mountinfo(hierarchies: list[Hierarchy], pure_v2: bool) -> str:
    rows = [
        "22 27 0:21 / /proc rw,relatime - proc proc rw",
        "23 27 0:22 / /sys rw,relatime - sysfs sysfs rw",
        "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw",
    ]
    if not pure_v2:
        rows.append("31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755")
    parent = 23 if pure_v2 else 31
    for number, hierarchy in enumerate(hierarchies, start=32):
        fs = "cgroup2" if hierarchy.version == 2 else "cgroup"
        options = "rw" if hierarchy.version == 2 else f"rw,{hierarchy.label}"
        rows.append(
            f"{number} {parent} 0:{number - 3} / {hierarchy.mount} rw,relatime - {fs} {fs}"
            f" {options}"
        )
    return "\n".join(rows) + "\n"


def mounts(hierarchies: list[Hierarchy], pure_v2: bool) -> str:
    rows = []
    for row in mountinfo(hierarchies, pure_v2).splitlines():
        left, _, right = row.partition(" - ")
        fs, source, options = right.split(" ")
        rows.append(f"{source} {left.split(' ')[4]} {fs} {options} 0 0")
    return "\n".join(rows) + "\n"


def cgroups_table(hierarchies: list[Hierarchy]) -> str:
    """/proc/cgroups, which cpuset heads."""
    rows = ["#subsys_name\thierarchy\tnum_cgroups\tenabled"]
    for hierarchy in hierarchies:
        count = sum(1 for _ in hierarchy.root.subtree())
        number = 0 if hierarchy.version == 2 else hierarchy.number
        rows.extend(f"{name}\t{number}\t{count}\t1" for name in hierarchy.controllers)
    return "\n".join(rows) + "\n"


class Proc:
    """Builds /proc and keeps its process directories in step with the processes."""

    def __init__(self, machine: Machine, scheduler: Scheduler, *, pure_v2: bool) -> None:
        self.machine = machine
        self.scheduler = scheduler
        self.root = ProcDirectory()
        self.root.entries = _Hidden(self._thread_directory)
        self.open_files: Callable[[], list[str]] = list
        options, hierarchies = machine.options, machine.hierarchies
        files: dict[str, Callable[[], str]] = {
            "stat": lambda: stat(machine, scheduler),
            "meminfo": lambda: meminfo(machine),
            "loadavg": self._loadavg,
            "uptime": self._uptime,
            "cpuinfo": lambda: cpuinfo(machine),
            "version": lambda: f"Linux version {options.kernel_release} (fake) #1 SMP\n",
            "vmstat": lambda: vmstat(machine),
            "cgroups": lambda: cgroups_table(hierarchies),
            "mounts": lambda: mounts(hierarchies, pure_v2),
            "filesystems": lambda: _filesystems(machine),
            "schedstat": lambda: "version 17\n",
        }
        for name, read in files.items():
            self.root.entries[name] = _read_only(read)
        self.mountinfo: Callable[[], str] = lambda: mountinfo(hierarchies, pure_v2)
        pressure = add_directory(self.root, "pressure", ProcDirectory)
        for resource in RESOURCES:
            pressure.entries[resource] = self._pressure_leaf(scheduler.pressure[resource])
        self._sysctls()
        machine.on_process.append(self._on_process)
        for process in machine.processes.values():
            self._on_process(process, True)

    def _pressure_leaf(self, pressure: Pressure) -> Leaf:
        privileged = self.machine.options.cap_sys_resource

        def write(text: str) -> None:
            parse_trigger(text, lambda: None, cap_sys_resource=privileged)

        return Leaf(pressure.text, write)

    def _sysctls(self) -> None:
        kernel = add_directory(self.root, "sys/kernel", ProcDirectory)
        options = self.machine.options
        constants = {
            "osrelease": options.kernel_release,
            "ostype": "Linux",
            "hostname": "fake",
            "random/boot_id": BOOT_ID,
            "sched_cfs_bandwidth_slice_us": "5000",
            "pid_max": "4194304",
        }
        for name, text in constants.items():
            directory, _, leaf = name.rpartition("/")
            parent = add_directory(kernel, directory, ProcDirectory) if directory else kernel
            parent.entries[leaf] = _constant(text)
        switches = {"task_delayacct": 0}
        if options.anolis:
            switches |= {"sched_group_identity_enabled": 1, "sched_core": 0}
        for name, initial in switches.items():
            kernel.entries[name] = number_leaf(initial, 0, 1)
        vm = add_directory(self.root, "sys/vm", ProcDirectory)
        vm.entries["min_free_kbytes"] = number_leaf(67584, 0, 2**31 - 1)
        vm.entries["watermark_scale_factor"] = number_leaf(10, 1, 3000)

    def _loadavg(self) -> str:
        load = " ".join(f"{value:.2f}" for value in self.scheduler.load)
        running = max(1, round(self.scheduler.running))
        threads = sum(len(p.threads) for p in self.machine.processes.values())
        return f"{load} {running}/{threads} {self.machine.next_pid}\n"

    def _uptime(self) -> str:
        now = self.machine.now_ns
        idle = sum(now - self.scheduler.busy_ns[c] for c in self.machine.options.topology.online)
        return f"{now / NS:.2f} {idle / NS:.2f}\n"

    def _on_process(self, process: Process, came: bool) -> None:
        if not came:
            gone = self.root.entries.pop(str(process.pid), None)
            if isinstance(gone, Directory):
                gone.removed = True
                for node in gone.entries.values():
                    node.removed = True
            return
        directory = self._process_directory(process)
        self.root.entries[str(process.pid)] = directory
        if process.pid == SELF_PID:
            self.root.entries["self"] = Link(directory)
            directory.entries["fd"] = _FdDirectory(self)

    def _process_directory(self, process: Process) -> ProcDirectory:
        machine = self.machine
        directory = ProcDirectory()
        files: dict[str, Callable[[], str]] = {
            "stat": lambda: process_stat(machine, process),
            "statm": lambda: process_statm(machine, process),
            "cgroup": lambda: cgroup_lines(machine, process),
            "comm": lambda: f"{process.comm}\n",
            "cmdline": lambda: f"{process.comm}\0",
            "environ": lambda: process.environ,
            "schedstat": lambda: f"{int(process.granted_ns)} {int(process.wait_ns)} 0\n",
            "status": lambda: process_status(machine, process),
            "mountinfo": self.mountinfo,
            "smaps_rollup": lambda: smaps_rollup(machine, process),
        }
        for name, read in files.items():
            directory.entries[name] = Leaf(read)
        directory.entries["oom_score_adj"] = Leaf(
            lambda: f"{process.oom_score_adj}\n", lambda text: self._write_oom(process, text)
        )
        directory.entries["clear_refs"] = Leaf(None, lambda text: _clear_refs(process, text))
        task = add_directory(directory, "task", ProcDirectory)
        for tid in process.threads:
            task.entries[str(tid)] = ProcDirectory()
        return directory

    def _thread_directory(self, name: str) -> ProcDirectory | None:
        """/proc/TID, which is there for every thread and listed for no one but the leader."""
        try:
            process = self.machine.thread(int(name)).process
        except (OSError, ValueError):
            return None
        return self._process_directory(process)

    def _write_oom(self, process: Process, text: str) -> None:
        """fs/proc/base.c: whoever has CAP_SYS_RESOURCE moves the floor as well."""
        value = number_in(strip(text), -1000, 1000, errno.EINVAL)
        privileged = self.machine.options.cap_sys_resource
        if value < process.oom_score_adj_min and not privileged:
            raise refuse(errno.EACCES)
        process.oom_score_adj = value
        if privileged:
            process.oom_score_adj_min = value


class _Hidden(dict[str, Leaf | Directory | Link]):
    """Entries of which some are found by name alone."""

    def __init__(self, find: Callable[[str], Directory | None]) -> None:
        super().__init__()
        self._find = find

    def get(self, name: str, default: object = None) -> Any:
        found = super().get(name)
        return self._find(name) if found is None else found


class _FdDirectory(ProcDirectory):
    """/proc/self/fd: one name per open file of the host."""

    def __init__(self, proc: Proc) -> None:
        super().__init__()
        self._proc = proc

    def names(self) -> list[str]:
        return self._proc.open_files()


def _filesystems(machine: Machine) -> str:
    names = ["sysfs", "proc", "cgroup", "cgroup2"]
    if machine.options.resctrl:
        names.append("resctrl")
    return "".join(f"nodev\t{name}\n" for name in names)


def _constant(text: str) -> Leaf:
    return Leaf(lambda: f"{text}\n", open_errno=errno.EACCES)


def _rss(machine: Machine, process: Process) -> int:
    hierarchy = machine.hierarchy_of("memory")
    return rss_bytes(hierarchy.root, process.pid) if hierarchy else 0


def process_stat(machine: Machine, process: Process) -> str:
    """The 52 fields of proc(5); those that are not modelled are 0."""
    user, system = split_ns(process.granted_ns)
    fields = ["0"] * 53
    fields[1:5] = [str(process.pid), f"({process.comm})", "R" if process.demand_cores else "S", "1"]
    fields[14], fields[15] = str(user // _TICK_NS), str(system // _TICK_NS)
    fields[18], fields[20] = "20", str(len(process.threads))
    fields[22] = str(process.start_ns // _TICK_NS)
    rss = _rss(machine, process)
    fields[23], fields[24] = str(rss), str(rss // PAGE_BYTES)
    return " ".join(fields[1:]) + "\n"


def smaps_rollup(machine: Machine, process: Process) -> str:
    """What is not modelled is left out: the lines are those of one anonymous mapping."""
    rss = _rss(machine, process) // 1024
    cold = min(process.cold_bytes // 1024, rss) if process.cleared else 0
    fields = {"Rss": rss, "Pss": rss, "Private_Clean": 0, "Private_Dirty": rss}
    fields["Referenced"] = rss - cold
    return "55d0-7ffd ---p 00000000 00:00 0                [rollup]\n" + "".join(
        f"{name + ':':<20} {size:>8} kB\n" for name, size in fields.items()
    )


def _clear_refs(process: Process, text: str) -> None:
    """1 is all pages, 2 and 3 the anonymous and the file pages, 4 and 5 something else."""
    if number_in(strip(text), 1, 5, errno.EINVAL) <= 3:
        process.cleared = True


def process_statm(machine: Machine, process: Process) -> str:
    pages = _rss(machine, process) // PAGE_BYTES
    return f"{pages} {pages} 0 0 0 {pages} 0\n"


def process_status(machine: Machine, process: Process) -> str:
    rss_kb = _rss(machine, process) // 1024
    return (
        f"Name:\t{process.comm}\nState:\tS (sleeping)\nTgid:\t{process.pid}\n"
        f"Pid:\t{process.pid}\nPPid:\t1\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n"
        f"VmRSS:\t{rss_kb:>8} kB\nThreads:\t{len(process.threads)}\n"
    )


def cpuinfo(machine: Machine) -> str:
    topology = machine.options.topology
    blocks = []
    for cpu in topology.cpus:
        if cpu.online:
            if machine.options.cpu_vendor == "ARM":
                blocks.append(
                    f"processor\t: {cpu.id}\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd\n"
                    "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n"
                )
                continue
            same = [c for c in topology.cpus if c.socket == cpu.socket and c.online]
            blocks.append(
                f"processor\t: {cpu.id}\nvendor_id\t: {machine.options.cpu_vendor}\n"
                f"cpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Fake CPU\ncpu MHz\t\t: 2000.000\n"
                f"physical id\t: {cpu.socket}\nsiblings\t: {len(same)}\ncore id\t\t: {cpu.core}\n"
                f"cpu cores\t: {len({c.core for c in same})}\nflags\t\t: fpu sse sse2\n"
            )
    return "\n".join(blocks) + "\n"


def vmstat(machine: Machine) -> str:
    values = memory_values(machine)
    return (
        f"nr_free_pages {values['free'] // PAGE_BYTES}\n"
        f"nr_anon_pages {values['anon'] // PAGE_BYTES}\n"
        f"nr_file_pages {values['cached'] // PAGE_BYTES}\n"
        f"oom_kill {_oom_kills(machine)}\n"
    )


def _oom_kills(machine: Machine) -> int:
    hierarchy = machine.hierarchy_of("memory")
    root: Cgroup | None = hierarchy.root if hierarchy else None
    return root.memory.events["oom_kill"] if root is not None and root.memory is not None else 0
