"""A fake machine with all that is not koordlet on it: kubelet, a container runtime, administrators,
the load. And its twin, on which koordlet never runs: the same hands touch both, so that the twin
always shows what the first would hold without koordlet."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec
from koordlet_fakefs import FakeHost, Process, Resctrl, shape
from koordlet_fakefs.cgroup import Cgroup
from koordlet_fakefs.faults import Faults
from koordlet_fakefs.kubepods import PodGroups
from koordlet_fakefs.resctrl_monitor import Monitor
from koordlet_fakefs.tree import Directory, Leaf

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import UNLIMITED, Resource, Value
from koordlet.decision.snapshot import Resources
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.knobs import Knobs
from tests.histories.network import Network
from tests.histories.pods import MIB, Pod, annotations_of, labels_of, priority_of, resources_of

MEMORY_BYTES = 8192 * MIB
CPUS = 4
PERIOD_US = 100_000
KINDS = 16
"""Of machines in each layout: what they can do takes long to find out."""
LAYOUTS = ("v1", "hybrid", "comount", "v2")
APPLICATIONS = {"shop": "LS", "db": "LSR", "batch": "BE", "job": "BE"}
"""Host applications by name, each with a cgroup of that name."""
_TIERS = {"guaranteed": "", "burstable": "burstable", "besteffort": "besteffort"}
_NOT_SETTINGS = (
    *("tasks", "cgroup.procs", "cgroup.threads", "cgroup.event_control", "release_agent"),
    *("memory.force_empty", "memory.max_usage_in_bytes", "memory.failcnt", "memory.peak"),
    *("memory.memsw.max_usage_in_bytes", "memory.memsw.failcnt", "cpuacct.usage"),
    *("blkio.reset_stats", "memory.drop_cache"),
)
"""Files of a cgroup that can be read and written and do not hold a setting."""


_NETLINK_CHANGES = frozenset({"add", "set", "remove", "redirect", "make", "change"})


class Machine:
    """``by_hand``: who wrote a file last. ``poked_s``: file -> when a hand changed it last, in
    seconds of the machine's clock."""

    def __init__(self, chance: random.Random) -> None:
        self.layout = chance.choice(LAYOUTS)
        self.driver = "systemd" if self.layout == "v2" else chance.choice(("cgroupfs", "systemd"))
        shapes = (
            shape(cores_per_l3=CPUS),
            shape(cores_per_l3=CPUS // 2, smt=2),
            shape(cores_per_l3=1, smt=2, numa_per_socket=2),
        )
        kind = random.Random(chance.randrange(KINDS))
        options = {
            "topology": kind.choice(shapes),
            "memory_bytes": MEMORY_BYTES,
            "anolis": kind.random() < 0.3,
            "resctrl": kind.random() < 0.4 and Resctrl(rmids=kind.choice((4, 6, 32))),
            "core_sched": kind.random() < 0.3,
            "terway": kind.random() < 0.3,
            "cap_sys_resource": kind.random() < 0.5,
        }
        self.real = FakeHost(self.layout, step_s=1.0, **options)
        self.twin = FakeHost(self.layout, step_s=1.0, **options)
        self.cgroups = Cgroups(self.real, detect(self.real))
        self.twin_cgroups = Cgroups(self.twin, detect(self.twin))
        self.knobs = Knobs(self.real, self.cgroups)
        self.twin_knobs = Knobs(self.twin, self.twin_cgroups)
        self.pods: dict[str, Pod] = {}
        self.gone: set[str] = set()
        self.gone_pods: dict[str, Pod] = {}
        """By cgroup."""
        self.apps: dict[str, list[Process]] = {}
        self.app_twins: dict[str, list[Process]] = {}
        self.moved_apps: dict[str, tuple[list[Process], list[Process]]] = {}
        """By their old names: processes here and on the twin."""
        self.poked_s: dict[str, float] = {}
        self.memory_bytes: dict[int, int] = {}
        """What processes want, by pid."""
        self.wrote: dict[str, set[bytes]] = {}
        """File -> the first words that koordlet has ever written there."""
        self.network = Network(random.Random(chance.getrandbits(32)), self._netlink)
        self.real.traffic = self.network.real.traffic  # type: ignore[assignment]
        self._numbers = itertools.count(1)
        for tier in _TIERS.values():
            self.both(lambda host, tier=tier: host.make_cgroup(self._tier(tier)))

    def _netlink(self, call: str, index: int) -> None:
        """koordlet speaks to the kernel about the network."""
        path = f"tc/{call}/{index}"
        self.real.faults.check("netlink", path)
        if call.partition("_")[0] in _NETLINK_CHANGES:
            self.real.written.append((path, b""))

    # --- Both machines

    def both(self, touch: Callable[[FakeHost], object]) -> None:
        """A hand touches both machines, unhindered by what koordlet's calls meet."""
        for host in (self.twin, self.real):
            with unhindered(host):
                touch(host)

    def is_below_poked(self, path: str) -> bool:
        """Whether somebody else has set the file of this name of a cgroup above."""
        above, _, name = path.rpartition("/")
        while above := above.rpartition("/")[0]:
            if f"{above}/{name}" in self.poked_s:
                return True
        return False

    def poke(self, cgroup: str, resource: Resource, value: Value) -> bool:
        """Somebody else writes a file, the twin's as well if the kernel takes it here. What
        koordlet has written there itself, or the kernel has copied there from a value of ours, is
        no second writer's value: nobody could tell."""
        try:
            path = self.knobs.path(cgroup, resource)
            word = self.knobs.encode(resource, value).split()[:1]
            if set(word) & self.wrote.get(path, set()):
                return False
            before = self.twin_knobs.read_raw(cgroup, resource)
            with unhindered(self.real):
                here = self.knobs.read_raw(cgroup, resource)
            if here != before and here.split()[:1] == word:
                return False
            with unhindered(self.twin):
                self.twin_knobs.write(cgroup, resource, value)
        except (OSError, ValueError, Unsupported):
            return False
        try:
            with unhindered(self.real):
                self.knobs.write(cgroup, resource, value)
        except OSError:
            with unhindered(self.twin):
                self.twin_knobs.write_raw(cgroup, resource, before)
            return False
        self.poked_s[path] = self.real.monotonic()
        return True

    def advance(self, seconds: float) -> None:
        self.real.advance(seconds)

    # --- Pods

    def _tier(self, tier: str) -> str:
        if self.driver == "cgroupfs":
            return f"kubepods/{tier}".rstrip("/")
        top = "kubepods.slice"
        return f"{top}/kubepods-{tier}.slice" if tier else top

    @property
    def tiers(self) -> tuple[str, ...]:
        return tuple(self._tier(tier) for tier in _TIERS.values())

    @property
    def best_effort(self) -> str:
        return self._tier("besteffort")

    def add_pod(self, chance: random.Random) -> Pod:
        number = next(self._numbers)
        uid = f"{number:08d}-0000-4000-8000-{chance.randrange(10**12):012d}"
        qos = chance.choice(("BE", "BE", "BE", "LS", "LS", "LSR", "LSE", "SYSTEM", ""))
        kube = "besteffort" if qos == "BE" else chance.choice(("burstable", "guaranteed"))
        if qos in ("LSR", "LSE"):
            kube = "guaranteed"
        if qos == "" and chance.random() < 0.3:
            kube = "besteffort"
        ids = [f"{number:04d}{n}".ljust(64, "c") for n in range(chance.choice((1, 1, 2)))]
        groups: list[PodGroups] = []
        self.both(
            lambda host: groups.append(
                host.make_pod(self.driver, kube, uid, ids)  # as the runtime: values from above
            )
        )
        resources = resources_of(chance, kube, qos)
        facts = PodFacts(
            uid,
            cgroup=groups[0].pod,
            name=f"pod{number}",
            namespace="ns",
            priority=priority_of(chance, qos),
            labels=labels_of(chance, qos),
            annotations=annotations_of(chance, qos),
            ips=chance.choice((None, (f"10.0.0.{number}", f"fd00::{number}"))),
            host_network=chance.random() < 0.2,
            resources=resources,
            containers=tuple(
                ContainerFacts(f"containerd://{i}", cgroup=g, name=f"c{n}", resources=resources)
                for n, (i, g) in enumerate(zip(ids, groups[0].containers, strict=True))
            ),
        )
        pod = Pod(facts, kube, groups[0])
        self.pods[uid] = pod
        self._ask(pod, resources)
        for cgroup in groups[0].containers:
            self._spawn(pod.processes, pod.twins, cgroup, chance)
        return pod

    def resize_pod(self, pod: Pod, chance: random.Random) -> None:
        """In place, as kubelet does it."""
        resources = resources_of(chance, pod.kube, pod.qos)
        containers = tuple(
            msgspec.structs.replace(each, resources=resources) for each in pod.facts.containers
        )
        pod.facts = msgspec.structs.replace(pod.facts, resources=resources, containers=containers)
        self._ask(pod, resources)

    def _ask(self, pod: Pod, resources: Resources) -> None:
        """What kubelet writes for the pod and the runtime for its containers; the pod first where
        the limit grows, else last."""
        settings: list[tuple[Resource, Value]] = []
        milli = resources.limit_cpu_milli
        quota = UNLIMITED if milli is None else max(milli * PERIOD_US // 1000, 1000)
        settings.append((Resource.CPU_QUOTA_US, quota))
        settings.append(
            (Resource.CPU_SHARES, max((resources.request_cpu_milli or 0) * 1024 // 1000, 2))
        )
        limit = resources.limit_memory_bytes
        settings.append((Resource.MEMORY_LIMIT, UNLIMITED if limit is None else limit))
        for resource, value in settings:
            order = pod.cgroups
            with unhindered(self.real), suppress(OSError, Unsupported):
                now = self.knobs.read(pod.groups.pod, resource)
                if value != UNLIMITED and (now == UNLIMITED or int(value) < int(now)):
                    order = order[::-1]
            for cgroup in order:
                self.poke(cgroup, resource, value)

    def remove_pod(self, pod: Pod) -> None:
        for process in pod.processes:
            process.stuck = False
        self.both(lambda host: host.remove_cgroup(pod.groups.pod))
        self.pods.pop(pod.uid, None)
        self.gone.add(pod.uid)
        self.gone_pods[pod.groups.pod] = pod

    def restart_container(self, pod: Pod, chance: random.Random) -> str:
        """The runtime makes a container's cgroup anew, under the same name, which is returned."""
        cgroup = chance.choice(pod.groups.containers)
        for process in pod.processes:
            process.stuck = False
        self.both(lambda host: host.remove_cgroup(cgroup))
        self.both(lambda host: host.make_cgroup(cgroup))
        self._ask(pod, pod.facts.resources or Resources())
        self._spawn(pod.processes, pod.twins, cgroup, chance)
        return cgroup

    # --- Applications

    def add_app(self, name: str, chance: random.Random) -> None:
        self.both(lambda host: host.make_cgroup(name))
        self._spawn(
            self.apps.setdefault(name, []), self.app_twins.setdefault(name, []), name, chance
        )

    def remove_app(self, name: str) -> None:
        for process in self.apps.pop(name, []):
            process.stuck = False
        self.app_twins.pop(name, None)
        self.both(lambda host: host.remove_cgroup(name))

    @staticmethod
    def moved_name(name: str) -> str:
        return f"{name}.moved"

    def rename_app(self, name: str) -> bool:
        """False where cgroups keep their names (v2), or the new one is taken."""
        if not self._rename(name, self.moved_name(name)):
            return False
        self.moved_apps[name] = self.apps.pop(name), self.app_twins.pop(name)
        return True

    def rename_back(self, name: str) -> bool:
        if name in self.apps or not self._rename(self.moved_name(name), name):
            return False
        self.apps[name], self.app_twins[name] = self.moved_apps.pop(name)
        return True

    def remove_moved(self, name: str) -> None:
        for process in self.moved_apps.pop(name)[0]:
            process.stuck = False
        self.both(lambda host: host.remove_cgroup(self.moved_name(name)))

    def _rename(self, cgroup: str, name: str) -> bool:
        """The same on both, or on neither."""
        try:
            with unhindered(self.twin):
                self.twin.rename_cgroup(cgroup, name)
        except OSError:
            return False
        with unhindered(self.real):
            self.real.rename_cgroup(cgroup, name)
        return True

    def _spawn(
        self, here: list[Process], there: list[Process], cgroup: str, chance: random.Random
    ) -> None:
        demand, memory = chance.choice((0.0, 0.2, 1.0, 3.0)), chance.choice((50, 200, 400)) * MIB
        with suppress(OSError):  # ENOSPC: a v1 cpuset that is empty
            there.append(self.twin.spawn(cgroup))
            with unhindered(self.real):
                process = self.real.spawn(
                    cgroup, demand_cores=demand, threads=CPUS, memory_bytes=memory
                )
            here.append(process)
            self.memory_bytes[process.pid] = memory

    # --- Looks

    def set_memory(self, process: Process, size: int) -> None:
        self.memory_bytes[process.pid] = size
        self.real.set_memory(process, size)

    def exceeds_its_limit(self, pod: Pod) -> bool:
        """Of memory: then the kernel ends its processes."""
        sizes = [self.memory_bytes.get(process.pid, 0) for process in pod.processes]
        return sum(sizes) > pod.memory_limit_bytes

    def processes(self) -> Iterator[Process]:
        for pod in self.pods.values():
            yield from pod.processes
        for processes in self.apps.values():
            yield from processes

    def alive_pairs(self) -> Iterator[tuple[Process, Process]]:
        """Living processes with their twins."""
        groups = [(pod.processes, pod.twins) for pod in self.pods.values()]
        groups += [(here, self.app_twins[name]) for name, here in self.apps.items()]
        for here, there in groups:
            for pair in zip(here, there, strict=False):
                if all(process.alive for process in pair):
                    yield pair

    def known_cgroups(self) -> list[str]:
        """Those that a hand may change."""
        found = [*self.tiers, *self.apps]
        for pod in self.pods.values():
            found.extend(pod.cgroups)
        return found


@contextmanager
def unhindered(host: FakeHost) -> Iterator[None]:
    """Calls of a hand: no scripted fault meets them, and they are not koordlet's writes."""
    faults, written = host.faults, host.written
    host.faults, host.written = Faults(), deque()
    try:
        yield
    finally:
        host.faults, host.written = faults, written


def settings_of(host: FakeHost) -> dict[str, str]:
    """Path -> content of every file of the machine that holds a setting."""
    found: dict[str, str] = {}
    seen: set[int] = set()

    def walk(directory: Directory, path: str) -> None:
        if id(directory) in seen:
            return
        seen.add(id(directory))
        for name, node in directory.entries.items():
            here = f"{path}/{name}"
            if isinstance(node, Directory):
                walk(node, here)
                if isinstance(node, Cgroup | Monitor):
                    found[here] = "(a group)"
            elif isinstance(node, Leaf) and node.read and _is_setting(name, node):
                with suppress(OSError):
                    found[here] = node.read()

    for place in ("sys", "proc", "var"):
        node = host.root.entries.get(place)
        if isinstance(node, Directory):
            if place == "proc":
                node = node.entries["sys"]
                place = "proc/sys"
                assert isinstance(node, Directory)
            walk(node, f"/{place}")
    return found


def _is_setting(name: str, leaf: Leaf) -> bool:
    return leaf.write is not None and name not in _NOT_SETTINGS and not name.endswith(".pressure")
