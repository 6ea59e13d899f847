"""CPUs, cores, sockets, caches and NUMA nodes from sysfs
(``Documentation/ABI/stable/sysfs-devices-system-cpu``)."""

from __future__ import annotations

from koordlet.decision.snapshot import Cpu, Topology
from koordlet.kernel.cgroup.forms import parse_int
from koordlet.kernel.host import Host
from koordlet.kernel.parse import ParseError
from koordlet.protocol.cpuset import CPUSet, parse_cpulist

FULL_CAPACITY = 1024


def read_topology(host: Host, sys_root: str = "/sys") -> Topology:
    """Online CPUs. What virtual machines and some arm64 boards do not tell (package -1, no
    cache or node directory) counts as 0.

    ``Cpu.core`` numbers cores by their first CPU, as lscpu does, so it is unique on the node.
    Raises OSError and ParseError.
    """
    base = f"{sys_root}/devices/system/cpu"
    node_of = _node_of(host, sys_root)
    cores: dict[frozenset[int] | tuple[int, int], int] = {}
    isolated, capacity_of = _optional_cpulist(host, f"{base}/isolated"), _capacities(host, sys_root)
    cpus = []
    for cpu in sorted(online_cpus(host, sys_root)):
        directory = f"{base}/cpu{cpu}"
        socket = max(_number(host, f"{directory}/topology/physical_package_id", 0), 0)
        core = cores.setdefault(_core_key(host, directory, socket, cpu), len(cores))
        numa, l3 = node_of.get(cpu, 0), _l3(host, directory)
        capacity = capacity_of.get(cpu, FULL_CAPACITY)
        cpus.append(Cpu(cpu, core, socket, numa, l3, capacity, cpu in isolated))
    return Topology(tuple(cpus))


def online_cpus(host: Host, sys_root: str = "/sys") -> CPUSet:
    """Raises OSError and ParseError."""
    return _cpulist(host, f"{sys_root}/devices/system/cpu/online")


def numa_nodes(host: Host, sys_root: str = "/sys") -> tuple[int, ...]:
    """Ids of the NUMA nodes, also those without CPUs; ``(0,)`` on a kernel without NUMA."""
    base = f"{sys_root}/devices/system/node"
    if not host.exists(base):
        return (0,)
    names = (name.removeprefix("node") for name in host.subdirs(base) if name.startswith("node"))
    return tuple(sorted(int(name) for name in names if name.isdigit())) or (0,)


def _node_of(host: Host, sys_root: str) -> dict[int, int]:
    base = f"{sys_root}/devices/system/node"
    if not host.exists(base):
        return {}
    return {
        cpu: node
        for node in numa_nodes(host, sys_root)
        for cpu in _cpulist(host, f"{base}/node{node}/cpulist")
    }


def _capacities(host: Host, sys_root: str) -> dict[int, int]:
    """Compute capacity by CPU, where the kernel tells it (arm64, and x86 since 6.13), else by the
    kinds of cores of a hybrid processor; empty where all are alike."""
    base = f"{sys_root}/devices/system/cpu"
    online = online_cpus(host, sys_root)
    if online and host.exists(f"{base}/cpu{min(online)}/cpu_capacity"):
        return {
            cpu: _number(host, f"{base}/cpu{cpu}/cpu_capacity", FULL_CAPACITY) for cpu in online
        }
    efficient = _optional_cpulist(host, f"{sys_root}/devices/cpu_atom/cpus")
    return dict.fromkeys(efficient, FULL_CAPACITY // 2)


def _optional_cpulist(host: Host, path: str) -> CPUSet:
    return _cpulist(host, path) if host.exists(path) else frozenset()


def _core_key(
    host: Host, directory: str, socket: int, cpu: int
) -> frozenset[int] | tuple[int, int]:
    """What all threads of a core have in common and no other core has: core_id repeats from
    socket to socket, and from die to die on some."""
    for name in ("core_cpus_list", "thread_siblings_list"):
        path = f"{directory}/topology/{name}"
        if host.exists(path) and (siblings := _cpulist(host, path)):
            return siblings
    core = _number(host, f"{directory}/topology/core_id", -1)
    return (socket, core) if core >= 0 else frozenset({cpu})


def _l3(host: Host, directory: str) -> int:
    """Id of the level 3 cache, else the lowest CPU that shares it."""
    caches = f"{directory}/cache"
    if not host.exists(caches):
        return 0
    for index in host.subdirs(caches):
        path = f"{caches}/{index}"
        if index.startswith("index") and _number(host, f"{path}/level", 0) == 3:
            identity = _number(host, f"{path}/id", -1)
            shared = f"{path}/shared_cpu_list"
            if identity >= 0:
                return identity
            return min(_cpulist(host, shared), default=0) if host.exists(shared) else 0
    return 0


def _number(host: Host, path: str, missing: int) -> int:
    """Content of a file with one integer; ``missing`` when there is no such file."""
    try:
        data = host.read(path)
    except FileNotFoundError:
        return missing
    try:
        return parse_int(data)
    except ValueError as error:
        raise ParseError(path, 1, str(error)) from error


def _cpulist(host: Host, path: str) -> CPUSet:
    try:
        return parse_cpulist(host.read(path).decode(errors="replace"))
    except ValueError as error:
        raise ParseError(path, 1, str(error)) from error
