"""``FakeHost``: the ``Host`` of koordlet on the fake machine, with the hands of a test on it."""

from __future__ import annotations

import errno
import os
import signal
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from koordlet_fakefs import cookies, kubepods, lru_gen, page_idle, resctrl, sysfs
from koordlet_fakefs.background import AtOnce
from koordlet_fakefs.bpf.perf import FakePerf
from koordlet_fakefs.cgroup import SELF_PID, Cgroup
from koordlet_fakefs.faults import Faults
from koordlet_fakefs.files import FilesDirectory
from koordlet_fakefs.layouts import Layout, mount
from koordlet_fakefs.machine import NS, Machine, Options, Process, Thread
from koordlet_fakefs.parse import PAGE_BYTES, c_string, named, refuse
from koordlet_fakefs.proc import Proc
from koordlet_fakefs.resources import memory
from koordlet_fakefs.resources.psi import Pressure, arm, parse_trigger
from koordlet_fakefs.resources.scheduler import Scheduler
from koordlet_fakefs.systemd import FakeSystemd
from koordlet_fakefs.tree import Directory, Leaf, WordsLeaf, add_directory, path_of, resolve
from koordlet_fakefs.watches import DirectoryWatch, TriggerWatch, WriteWatch

from koordlet.kernel.background import Background, Pause, no_pause
from koordlet.kernel.bpf.block import BlockIo
from koordlet.kernel.bpf.cpi import CpiCounters
from koordlet.kernel.bpf.irq import Interrupts
from koordlet.kernel.bpf.need import NEW_KERNEL, NeedError
from koordlet.kernel.bpf.objects import BTF, NO_BTF
from koordlet.kernel.bpf.run_queue import RunQueue
from koordlet.kernel.bpf.stalls import Stalls
from koordlet.kernel.host import temporary
from koordlet.protocol.cpuset import CPUSet

if TYPE_CHECKING:
    from koordlet.kernel.devices.nvml import Nvml

_WRITES_KEPT = 10_000
T = TypeVar("T")


class FakeFile:
    """An open file; see ``koordlet.kernel.host.File``."""

    def __init__(self, host: FakeHost, path: str, leaf: Leaf, *, write: bool) -> None:
        self._host = host
        self._leaf = leaf
        self._writable = write
        self._open = True
        self.path = path

    def read(self) -> bytes:
        self._host.faults.check("read", self.path)
        with named(self.path):
            if not self._open:
                raise refuse(errno.EBADF)
            return self._host.faults.shorten(self.path, _read(self._leaf))

    def write(self, data: bytes) -> None:
        self._host.faults.check("write", self.path)
        with named(self.path):
            if not self._open:
                raise refuse(errno.EBADF)
            if not self._writable:
                # seq files opened for reading lose pwrite altogether, hence no EBADF.
                raise refuse(errno.ESPIPE)
            _write(self._leaf, data)
        self._host.written.append((self.path, data))
        for follow in self._host.on_write:
            follow(self.path)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._host.open_files.discard(self)


def _loaded(make: Callable[[], T] | None) -> T:
    if make is None:
        raise NeedError(errno.ENOENT, NO_BTF, BTF, NEW_KERNEL)
    return make()


class FakeWords:
    """An open file of words; see ``koordlet.kernel.host.Words``."""

    def __init__(self, host: FakeHost, path: str, leaf: WordsLeaf, *, write: bool) -> None:
        self._host = host
        self._leaf = leaf
        self._writable = write
        self.path = path
        self.is_open = True

    def read(self, first: int, count: int) -> tuple[int, ...]:
        self._host.faults.check("read", self.path)
        last = min(first + count, self._leaf.words)
        return tuple(self._leaf.read_word(number) for number in range(first, last))

    def write(self, first: int, values: Sequence[int]) -> None:
        self._host.faults.check("write", self.path)
        write = self._leaf.write_word
        with named(self.path):
            if not self._writable or write is None:
                raise refuse(errno.EBADF)
            if first + len(values) > self._leaf.words:
                raise refuse(errno.ENXIO)
            for number, value in enumerate(values):
                write(first + number, value)

    def close(self) -> None:
        self.is_open = False


def _read(leaf: Leaf) -> bytes:
    if leaf.removed:
        raise refuse(errno.ENODEV)
    if leaf.read is None:
        raise refuse(errno.EINVAL)
    return os.fsencode(leaf.read())


def _write(leaf: Leaf, data: bytes) -> None:
    if leaf.removed:
        raise refuse(errno.ENODEV)
    if leaf.write is None:
        raise refuse(leaf.write_errno)
    if len(data) > PAGE_BYTES:
        raise refuse(errno.E2BIG)
    if data:
        leaf.write(c_string(data))


class FakeHost:
    """A whole machine in memory.

    ``layout``: which hierarchies are mounted. Keyword options are those of ``Options``
    (topology, memory_bytes, anolis, cap_sys_resource, disks ...). ``step_s`` is the longest step
    of the scheduling model: short steps see throttling inside a quota period, long ones are
    cheap. Time moves by ``advance`` alone.
    """

    def __init__(self, layout: Layout = "hybrid", *, step_s: float = 0.01, **options: Any) -> None:
        self.options = Options(**options)
        self.deaf: set[int] = set()
        """Processes that SIGTERM does not end."""
        self.nvml_library: Callable[[], Nvml] | None = None
        """Loads a stand-in of NVIDIA's library."""
        self.clock_ahead_s = 0.0
        """Of the wall clock alone: somebody set it."""
        self.machine = Machine(self.options, now_ns=self.options.uptime_s * NS)
        self.faults = Faults()
        self.open_files: set[FakeFile] = set()
        self.written: deque[tuple[str, bytes]] = deque(maxlen=_WRITES_KEPT)
        """The last successful writes in order: (path, data)."""
        self.on_write: list[Callable[[str], None]] = []
        """Called with the path of each file that was written."""
        self.systemd = FakeSystemd(self)
        self.root = Directory()
        sys = Directory()
        mount(self.machine, sys, layout)
        self.machine.fork("koordlet", 1, pid=SELF_PID)
        self.machine.fork("init", 1, pid=1)
        self.scheduler = Scheduler(self.machine, step_s)
        self._proc = Proc(self.machine, self.scheduler, pure_v2=layout == "v2")
        self._proc.open_files = lambda: [str(n) for n in range(len(self.open_files) + 4)]
        sysfs.build(sys, self.machine)
        if self.options.lru_gen:
            lru_gen.build(sys, self.machine)
        if self.options.page_idle:
            page_idle.build(sys, self._proc.root, self.machine)
        self.resctrl = resctrl.mount(self.machine, sys) if self.options.resctrl else None
        self.root.entries.update({"sys": sys, "proc": self._proc.root})
        if self.options.terway:
            terway = add_directory(self.root, "var/lib/terway")
            terway.entries["qos"] = FilesDirectory()
        self._cookies = cookies.Cookies(self.machine)
        self.counters = FakePerf(self.machine, self.faults, self.group)
        self.make_run_queue: Callable[[], RunQueue] | None = None
        """None: a kernel without BTF; so with the next three."""
        self.make_block_io: Callable[[], BlockIo] | None = None
        self.make_stalls: Callable[[], Stalls] | None = None
        self.make_interrupts: Callable[[], Interrupts] | None = None
        self.make_cpi_counters: Callable[[], CpiCounters] | None = None

    # --- Host

    def open(self, path: str, *, write: bool = False) -> FakeFile:
        self.faults.check("open", path)
        with named(path):
            leaf = self._leaf(path)
            if write and leaf.open_errno:
                raise refuse(leaf.open_errno)
        file = FakeFile(self, path, leaf, write=write)
        self.open_files.add(file)
        return file

    def read(self, path: str) -> bytes:
        file = self.open(path)
        try:
            return file.read()
        finally:
            file.close()

    def words(self, path: str, *, write: bool = False) -> FakeWords:
        self.faults.check("open", path)
        with named(path):
            leaf = self._leaf(path)
            if not isinstance(leaf, WordsLeaf):
                raise refuse(errno.EINVAL)
            if write and leaf.open_errno:
                raise refuse(leaf.open_errno)
        return FakeWords(self, path, leaf, write=write)

    def write(self, path: str, data: bytes) -> None:
        file = self.open(path, write=True)
        try:
            file.write(data)
        finally:
            file.close()

    def read_ordinary(self, path: str, most_bytes: int) -> bytes:
        data = self.read(path)
        if len(data) > most_bytes:
            raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes", path)
        return data

    def real_path(self, path: str) -> str:
        node = self._node(path)
        return path if not isinstance(node, Directory) else path_of(self.root, node)

    def listdir(self, path: str) -> list[str]:
        self.faults.check("listdir", path)
        return [name for name in self._directory(path).names() if not self._hides(path, name)]

    def subdirs(self, path: str) -> list[str]:
        self.faults.check("listdir", path)
        entries = self._directory(path).entries  # links to directories do not count
        found = (name for name, node in entries.items() if isinstance(node, Directory))
        return sorted(name for name in found if not self._hides(path, name))

    def subdir_inodes(self, path: str) -> dict[str, int]:
        self.faults.check("listdir", path)
        entries = self._directory(path).entries
        return {name: node.ino for name, node in entries.items() if isinstance(node, Directory)}

    def exists(self, path: str) -> bool:
        try:
            self._node(path)
        except OSError:
            return False
        return True

    def mkdir(self, path: str) -> None:
        self.faults.check("mkdir", path)
        parent, _, name = path.rpartition("/")
        with named(path):
            self._directory(parent).mkdir(name)

    def rmdir(self, path: str) -> None:
        self.faults.check("rmdir", path)
        parent, _, name = path.rpartition("/")
        with named(path):
            node = self._node(path)
            if isinstance(node, Cgroup) and node.parent is None:
                raise refuse(errno.EBUSY)
            self._directory(parent).rmdir(name)

    def replace(self, path: str, data: bytes) -> None:
        self.faults.check("replace", path)
        with named(path):
            directory, name = self._files(path)
            new = temporary(name)
            directory.put(new, data)
            self.faults.check("rename", path)
            directory.move(new, name)
        self.written.append((path, data))

    def write_limit(self, path: str, data: bytes) -> None:
        self.write(path, data)

    def unlink(self, path: str) -> None:
        self.faults.check("unlink", path)
        with named(path):
            directory, name = self._files(path)
            directory.drop(name)

    def inode(self, path: str) -> int:
        self.faults.check("inode", path)
        return self._node(path).ino

    def watch_directories(self, on_event: Callable[[str, str], None]) -> DirectoryWatch:
        return DirectoryWatch(self, on_event)

    def watch_writes(self, on_event: Callable[[str, str], None]) -> WriteWatch:
        return WriteWatch(self, on_event)

    def psi_trigger(self, path: str, trigger: str, on_fire: Callable[[], None]) -> TriggerWatch:
        self.faults.check("psi", path)
        with named(path):
            pressure = self._pressure(path)
            watch = TriggerWatch(pressure, on_fire)
            parsed = parse_trigger(
                trigger, watch.fire, cap_sys_resource=self.options.cap_sys_resource
            )
        arm(pressure, parsed, self.machine.now_ns)
        self.machine.generation += 1
        return watch

    def thread_cpus(self, thread: int) -> CPUSet:
        self.faults.check("affinity", f"sched_getaffinity({thread})")
        with named("sched_getaffinity"):
            there = self.machine.thread(thread)
        allowed = self._allowed(there)
        return allowed if there.cpus is None else there.cpus & allowed or allowed

    def set_thread_cpus(self, thread: int, cpus: CPUSet) -> None:
        self.faults.check("affinity", f"sched_setaffinity({thread})")
        with named("sched_setaffinity"):
            there = self.machine.thread(thread)
            if not cpus & self._allowed(there):
                raise OSError(errno.EINVAL, "no CPU of it is allowed")
        there.cpus = cpus

    def _allowed(self, thread: Thread) -> CPUSet:
        """By the cpuset of its cgroup."""
        groups = (group for group in thread.cgroups.values() if group.cpuset is not None)
        cpuset = next((group.cpuset for group in groups), None)
        return cpuset.effective("cpus") if cpuset else self.machine.options.topology.online

    def sched_core(self, command: int, pid: int, scope: int) -> int:
        self.faults.check("prctl", f"prctl({command}, {pid}, {scope})")
        with named("prctl(PR_SCHED_CORE)"):
            return self._cookies.call(command, pid, scope)

    def signal(
        self, pids: Sequence[int], number: int, members: Callable[[], Collection[int]]
    ) -> None:
        self.faults.check("signal", f"kill({number})")
        there = members()
        for pid in pids:
            process = self.machine.processes.get(pid)
            if process is None or pid not in there or process.stuck:
                continue
            if self._ends(pid, number):
                self.machine.exit(process)

    def traffic(self) -> NoReturn:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), "netlink")

    def unit_properties(self) -> FakeSystemd:
        return self.systemd

    def perf(self) -> FakePerf:
        return self.counters

    def background(self, name: str) -> Background:
        return AtOnce()

    def run_queue(self, *, by_cpu_controller: bool, pause: Pause = no_pause) -> RunQueue:
        return _loaded(self.make_run_queue)

    def block_io(self) -> BlockIo:
        return _loaded(self.make_block_io)

    def stalls(self, *, by_memory_controller: bool) -> Stalls:
        return _loaded(self.make_stalls)

    def interrupts(self, *, by_cpu_controller: bool) -> Interrupts:
        return _loaded(self.make_interrupts)

    def nvml(self) -> Nvml:
        if self.nvml_library is None:
            raise OSError(errno.ENOENT, "no such library on this fake machine", "libnvidia-ml.so.1")
        return self.nvml_library()

    def cpi_counters(self, *, by_cpu_controller: bool) -> CpiCounters:
        if self.make_cpi_counters is None:
            raise NeedError(errno.ENOENT, NO_BTF, BTF, NEW_KERNEL)
        return self.make_cpi_counters()

    def monotonic(self) -> float:
        return self.machine.now_ns / NS

    def time(self) -> float:
        since_boot_s = self.monotonic() - self.options.uptime_s
        return self.options.start_time + since_boot_s + self.clock_ahead_s

    # --- The test's side

    def advance(self, seconds: float) -> None:
        """Let time pass: tasks run, triggers fire, owed events are delivered at their time."""
        self.deliver()
        end = self.machine.now_ns + round(seconds * NS)
        step = self.scheduler.step_ns
        while self.machine.now_ns < end:
            to_grid = step - self.machine.now_ns % step
            self.scheduler.step(min(to_grid, end - self.machine.now_ns))
            self.deliver()

    def suspend(self, seconds: float) -> None:
        """The machine sleeps: time passes, and nothing runs."""
        self.machine.now_ns += round(seconds * NS)
        self.deliver()

    def deliver(self) -> None:
        """Run the callbacks of watches that are owed, also those that these cause."""
        while self.machine.events:
            self.machine.events.popleft()()

    def spawn(
        self,
        cgroup: str,
        *,
        demand_cores: float = 0.0,
        threads: int = 1,
        memory_bytes: int = 0,
        cache_bytes: int = 0,
        open_loop: bool = False,
        service_s: float = 0.001,
        comm: str = "task",
    ) -> Process:
        """A process in ``cgroup`` (relative path) of every hierarchy that has it.

        Its demand may be changed later by ``set_demand``. ENOENT when no hierarchy has the
        group, ENOSPC for an empty v1 cpuset.
        """
        process = self.machine.fork(comm, threads)
        process.open_loop = open_loop
        process.service_s = service_s
        try:
            with named(cgroup):
                kubepods.enter(self.machine, process, cgroup)
        except OSError:
            self.machine.exit(process)
            raise
        self.set_demand(process, demand_cores)
        if memory_bytes:
            memory.set_anon(process, memory_bytes)
        if cache_bytes:
            memory.read_files(process, cache_bytes)
        return process

    def set_demand(self, process: Process, demand_cores: float) -> None:
        """CPU time it wants per second; at most one core per thread is of use."""
        process.demand_cores = demand_cores
        self.machine.generation += 1

    def set_memory(self, process: Process, memory_bytes: int) -> None:
        """Anonymous memory; may end in an OOM kill (``process.alive``)."""
        memory.set_anon(process, memory_bytes)

    def read_files(self, process: Process, cache_bytes: int) -> None:
        """The process fills page cache of its memory cgroup."""
        memory.read_files(process, cache_bytes)

    def cool(self, cgroup: str, *, anon_bytes: int = 0, file_bytes: int = 0) -> None:
        """From now on nobody uses this much of the group's own memory."""
        state = self._memory_state(cgroup)
        state.cold_anon_bytes, state.cold_file_bytes = anon_bytes, file_bytes

    def refault(self, cgroup: str, pages: int) -> None:
        """Pages of the group that were reclaimed are wanted again."""
        self._memory_state(cgroup).refaults += pages

    def _memory_state(self, cgroup: str) -> memory.MemoryState:
        hierarchy = self.machine.hierarchy_of("memory")
        assert hierarchy is not None
        state = self.group(f"{hierarchy.mount}/{cgroup}").memory
        assert state is not None
        return state

    def exit(self, process: Process) -> None:
        self.machine.exit(process)

    def stall(self, path: str, *, some: float = 0.0, full: float = 0.0) -> None:
        """From now on tasks behind a pressure file stall for this share of the time."""
        self._pressure(path).stall = {"some": some, "full": full}
        self.machine.generation += 1

    def make_cgroup(self, cgroup: str) -> None:
        """The group and those above it in every hierarchy, ready for tasks, as a container
        runtime makes them: v1 cpusets filled from above, v2 controllers enabled."""
        kubepods.make_cgroup(self.machine, cgroup)

    def make_pod(
        self,
        driver: str = "cgroupfs",
        qos: str = "besteffort",
        uid: str = "6553a60b-2b97-442a-b6da-a5704d81dd98",
        containers: Iterable[str] = (),
        runtime: str = "containerd",
    ) -> kubepods.PodGroups:
        """The cgroups of a pod as kubelet (``driver`` cgroupfs or systemd) and the runtime make
        them. ``qos``: guaranteed, burstable or besteffort."""
        names = kubepods.pod_groups(driver, qos, uid, tuple(containers), runtime)
        for group in (*names.parents, names.pod, *names.containers):
            self.make_cgroup(group)
        return names

    def rename_cgroup(self, cgroup: str, name: str) -> None:
        """Another name for a group in every v1 hierarchy that has it. ENOENT where none has."""
        kubepods.rename_cgroup(self.machine, cgroup, name)

    def rename(self, path: str, new: str) -> None:
        """rename(2) of a cgroup directory, which only v1 has, and only within its parent."""
        with named(path):
            group = self._node(path)
            if not isinstance(group, Cgroup) or group.parent is None:
                raise refuse(errno.EPERM)
            parent, _, name = new.rpartition("/")
            if self._node(parent) is not group.parent:
                raise refuse(errno.EIO)
            group.rename(name)

    def remove_cgroup(self, cgroup: str) -> None:
        """Kill what runs in the group and remove it everywhere, children first."""
        kubepods.remove_cgroup(self.machine, cgroup)

    def look(self, path: str) -> str:
        """Content of a file, whatever faults are scripted. Raises as the kernel does."""
        with named(path):
            node = resolve(self.root, path)
            if not isinstance(node, Leaf):
                raise refuse(errno.EISDIR)
            return os.fsdecode(_read(node))

    def group(self, path: str) -> Cgroup:
        """The cgroup behind an absolute path, for a look at its state."""
        with named(path):
            node = resolve(self.root, path)
        if not isinstance(node, Cgroup):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _ends(self, pid: int, number: int) -> bool:
        return number == signal.SIGKILL or (number == signal.SIGTERM and pid not in self.deaf)

    def _files(self, path: str) -> tuple[FilesDirectory, str]:
        parent, _, name = path.rpartition("/")
        directory = self._directory(parent)
        if not isinstance(directory, FilesDirectory):
            raise refuse(errno.EPERM)
        return directory, name

    def _hides(self, directory: str, name: str) -> bool:
        return self.faults.hides(f"{directory}/{name}")

    def _node(self, path: str) -> Leaf | Directory:
        with named(path):
            if self.faults.hides(path):
                raise refuse(errno.ENOENT)
            return resolve(self.root, path)

    def _leaf(self, path: str) -> Leaf:
        node = self._node(path)
        if isinstance(node, Directory):
            raise refuse(errno.EISDIR)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._node(path)
        if isinstance(node, Leaf):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _pressure(self, path: str) -> Pressure:
        self._leaf(path)
        directory, _, name = path.rpartition("/")
        if directory == "/proc/pressure":
            return self.scheduler.pressure[name]
        resource, _, suffix = name.rpartition(".")
        node = self._directory(directory)
        if suffix != "pressure" or not isinstance(node, Cgroup):
            raise refuse(errno.EINVAL)
        return node.pressure[resource]
