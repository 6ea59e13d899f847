"""/sys/devices/system/{cpu,node}: the topology as sysfs shows it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable

from koordlet_fakefs.machine import Machine
from koordlet_fakefs.parse import number_in, print_ids, strip
from koordlet_fakefs.resources.memory import node_bytes, states_below
from koordlet_fakefs.topology import FakeCpu, FakeTopology
from koordlet_fakefs.tree import Directory, Leaf, Link, add_directory, number_leaf

_CACHES = (
    # index, level, type, size, whose CPUs share it
    (0, 1, "Data", "48K", "core"),
    (1, 1, "Instruction", "32K", "core"),
    (2, 2, "Unified", "2048K", "core"),
    (3, 3, "Unified", "32768K", "l3"),
)


def _scan_period(machine: Machine) -> Leaf:
    """Setting it forgets how long pages were idle."""

    def write(text: str) -> None:
        machine.kidled_period_s = number_in(strip(text), 0, 65535, errno.EINVAL)
        machine.kidled_since_ns = machine.now_ns

    return Leaf(lambda: f"{machine.kidled_period_s}\n", write)


def _leaf(read: Callable[[], str] | str) -> Leaf:
    text = (lambda: f"{read}\n") if isinstance(read, str) else read
    return Leaf(text, open_errno=errno.EACCES)


def bitmap(ids: Iterable[int]) -> str:
    """A CPU mask: 32-bit hex words, highest first."""
    value = sum(1 << i for i in ids)
    words = [value & 0xFFFFFFFF]
    while value >> 32:
        value >>= 32
        words.append(value & 0xFFFFFFFF)
    return ",".join([f"{words[-1]:x}", *(f"{word:08x}" for word in reversed(words[:-1]))])


def _siblings(topology: FakeTopology, cpu: FakeCpu) -> dict[str, frozenset[int]]:
    online = [c for c in topology.cpus if c.online]
    return {
        "core": frozenset(c.id for c in online if (c.socket, c.core) == (cpu.socket, cpu.core)),
        "socket": frozenset(c.id for c in online if c.socket == cpu.socket),
        "l3": frozenset(c.id for c in online if c.l3 == cpu.l3),
    }


def _add_cpu(cpus: Directory, nodes: Directory, topology: FakeTopology, cpu: FakeCpu) -> None:
    """An offline CPU keeps its directory, without topology and caches."""
    directory = add_directory(cpus, f"cpu{cpu.id}")
    if cpu.id:
        directory.entries["online"] = _leaf(str(int(cpu.online)))
    if not cpu.online:
        return
    near = _siblings(topology, cpu)
    shown = add_directory(directory, "topology")
    values = {
        "core_id": str(cpu.core),
        "physical_package_id": str(cpu.socket),
        "die_id": "0",
    }
    for names, who in (
        (("thread_siblings", "core_cpus"), "core"),
        (("core_siblings", "package_cpus", "die_cpus"), "socket"),
    ):
        for name in names:
            values[name] = bitmap(near[who])
            values[f"{name}_list"] = print_ids(near[who])
    for name, text in values.items():
        shown.entries[name] = _leaf(text)
    for index, level, kind, size, who in _CACHES:
        cache = add_directory(directory, f"cache/index{index}")
        number = cpu.l3 if who == "l3" else min(near["core"])
        for name, text in {
            "level": str(level),
            "type": kind,
            "size": size,
            "id": str(number),
            "shared_cpu_list": print_ids(near[who]),
            "shared_cpu_map": bitmap(near[who]),
        }.items():
            cache.entries[name] = _leaf(text)
    directory.entries[f"node{cpu.numa}"] = Link(add_directory(nodes, f"node{cpu.numa}"))


def _node_meminfo(machine: Machine, node: int) -> str:
    nodes = machine.options.topology.numa_nodes
    total = machine.options.memory_bytes // nodes
    hierarchy = machine.hierarchy_of("memory")
    anon, file = node_bytes(states_below(hierarchy.root), node) if hierarchy else (0, 0)
    free = max(0, total - machine.options.base_memory_bytes // nodes - anon - file)
    fields = {
        "MemTotal": total,
        "MemFree": free,
        "MemUsed": total - free,
        "Active": file - file // 2,
        "Inactive": anon + file // 2,
        "Active(anon)": 0,
        "Inactive(anon)": anon,
        "Active(file)": file - file // 2,
        "Inactive(file)": file // 2,
        "FilePages": file,
        "AnonPages": anon,
        "Slab": 0,
        "SReclaimable": 0,
        "KReclaimable": 0,
    }
    return "".join(
        f"Node {node} {name + ':':<15} {size // 1024:>8} kB\n" for name, size in fields.items()
    )


def _add_node(nodes: Directory, machine: Machine, node: int) -> None:
    topology = machine.options.topology
    cpus = frozenset(cpu.id for cpu in topology.cpus if cpu.numa == node and cpu.online)
    directory = add_directory(nodes, f"node{node}")
    distances = " ".join("10" if n == node else "20" for n in sorted(topology.nodes))
    directory.entries["meminfo"] = _leaf(lambda: _node_meminfo(machine, node))
    directory.entries["cpulist"] = _leaf(print_ids(cpus))
    directory.entries["cpumap"] = _leaf(bitmap(cpus))
    directory.entries["distance"] = _leaf(distances)


def build(sys: Directory, machine: Machine) -> None:
    """Adds devices/system below ``sys``."""
    topology = machine.options.topology
    cpus = add_directory(sys, "devices/system/cpu")
    smt = any(len(_siblings(topology, cpu)["core"]) > 1 for cpu in topology.cpus if cpu.online)
    for name, text in {
        "online": print_ids(topology.online),
        "present": print_ids(topology.present),
        "possible": print_ids(topology.present),
        "offline": print_ids(topology.present - topology.online),
        "isolated": "",
        "kernel_max": "8191",
    }.items():
        cpus.entries[name] = _leaf(text)
    control = add_directory(cpus, "smt")
    control.entries["active"] = _leaf(str(int(smt)))
    control.entries["control"] = _leaf("on" if smt else "notsupported")
    nodes = add_directory(sys, "devices/system/node")
    for cpu in topology.cpus:
        _add_cpu(cpus, nodes, topology, cpu)
    for name, ids in {
        "online": topology.nodes,
        "possible": topology.nodes,
        "has_memory": topology.nodes,
        "has_cpu": frozenset(cpu.numa for cpu in topology.cpus if cpu.online),
    }.items():
        nodes.entries[name] = _leaf(print_ids(ids))
    for node in topology.nodes:
        _add_node(nodes, machine, node)
    if machine.options.anolis:
        for name in ("memcg_reaper/reap_background", "pagecache_limit/enabled"):
            directory, _, leaf = name.partition("/")
            found = add_directory(sys, f"kernel/mm/{directory}")
            found.entries[leaf] = number_leaf(0, 0, 1)
        kidled = add_directory(sys, "kernel/mm/kidled")
        kidled.entries["scan_period_in_seconds"] = _scan_period(machine)
        kidled.entries["use_hierarchy"] = number_leaf(0, 0, 1)
    if machine.options.kdamond:
        kdamond = add_directory(sys, "kernel/mm/damon/admin/kdamonds/0")
        kdamond.entries["state"] = _leaf("on")
    block = add_directory(sys, "block")
    by_number = add_directory(sys, "dev/block")
    for major, minor, name in machine.options.disks:
        disk = add_directory(block, name)
        disk.entries["dev"] = _leaf(f"{major}:{minor}")
        by_number.entries[f"{major}:{minor}"] = Link(disk)
