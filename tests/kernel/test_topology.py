"""Topologies of machines that tell everything, and of some that do not."""

from __future__ import annotations

import pytest

from koordlet.decision.snapshot import Cpu
from koordlet.kernel.parse import ParseError
from koordlet.kernel.topology import numa_nodes, read_topology
from tests.kernel.dict_host import DictHost

BASE = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"


def cpu_files(
    cpu: int, *, socket: str, core: int, siblings: str, l3: str | None, shared: str = ""
) -> dict[str, str]:
    files = {
        f"{BASE}/cpu{cpu}/topology/physical_package_id": f"{socket}\n",
        f"{BASE}/cpu{cpu}/topology/core_id": f"{core}\n",
        f"{BASE}/cpu{cpu}/topology/thread_siblings_list": f"{siblings}\n",
        f"{BASE}/cpu{cpu}/cache/index0/level": "1\n",
        f"{BASE}/cpu{cpu}/cache/index0/id": f"{cpu}\n",
        f"{BASE}/cpu{cpu}/cache/index3/level": "3\n",
        f"{BASE}/cpu{cpu}/cache/index3/shared_cpu_list": f"{shared}\n",
    }
    if l3 is not None:
        files[f"{BASE}/cpu{cpu}/cache/index3/id"] = f"{l3}\n"
    return files


def two_sockets_with_smt() -> dict[str, str]:
    """8 CPUs: cpu and cpu+4 share a core; core_id 0, 1 repeat in each socket; cpu 7 offline."""
    files = {
        f"{BASE}/online": "0-6\n",
        f"{NODE}/node0/cpulist": "0-1,4-5\n",
        f"{NODE}/node2/cpulist": "2-3,6-7\n",
        f"{NODE}/node3/cpulist": "\n",
        f"{NODE}/has_cpu": "0,2\n",
    }
    for cpu in range(7):
        socket = cpu % 4 // 2
        siblings = "3" if cpu == 3 else f"{cpu % 4},{cpu % 4 + 4}"
        files |= cpu_files(
            cpu, socket=str(socket), core=cpu % 2, siblings=siblings, l3=str(socket * 8)
        )
    return files


def test_smt_sockets_and_sparse_nodes() -> None:
    host = DictHost(two_sockets_with_smt())
    assert read_topology(host).cpus == (
        Cpu(id=0, core=0, socket=0, numa=0, l3=0),
        Cpu(id=1, core=1, socket=0, numa=0, l3=0),
        Cpu(id=2, core=2, socket=1, numa=2, l3=8),
        Cpu(id=3, core=3, socket=1, numa=2, l3=8),
        Cpu(id=4, core=0, socket=0, numa=0, l3=0),
        Cpu(id=5, core=1, socket=0, numa=0, l3=0),
        Cpu(id=6, core=2, socket=1, numa=2, l3=8),
    )
    assert numa_nodes(host) == (0, 2, 3)


def test_without_sibling_lists_a_core_is_socket_and_core_id() -> None:
    files = {path: text for path, text in two_sockets_with_smt().items() if "siblings" not in path}
    assert [cpu.core for cpu in read_topology(DictHost(files)).cpus] == [0, 1, 2, 3, 0, 1, 2]


def test_cache_without_an_id_is_named_by_its_first_cpu() -> None:
    files = {f"{BASE}/online": "0-3\n"}
    for cpu in range(4):
        shared = "0-1" if cpu < 2 else "2-3"
        files |= cpu_files(cpu, socket="0", core=cpu, siblings=str(cpu), l3=None, shared=shared)
    assert [cpu.l3 for cpu in read_topology(DictHost(files)).cpus] == [0, 0, 2, 2]


def test_a_machine_that_tells_nothing_but_its_cpus() -> None:
    """An arm64 virtual machine: package -1, no cache, no node directory, no core id."""
    files = {f"{BASE}/online": "0,2\n"}
    files |= {f"{BASE}/cpu{cpu}/topology/physical_package_id": "-1\n" for cpu in (0, 2)}
    host = DictHost(files)
    assert read_topology(host).cpus == (
        Cpu(id=0, core=0, socket=0, numa=0, l3=0),
        Cpu(id=2, core=1, socket=0, numa=0, l3=0),
    )
    assert numa_nodes(host) == (0,)


@pytest.mark.parametrize(
    ("path", "text"),
    [(f"{BASE}/online", "0-x\n"), (f"{BASE}/cpu0/topology/physical_package_id", "many\n")],
)
def test_nonsense_names_its_file(path: str, text: str) -> None:
    with pytest.raises(ParseError) as wrong:
        read_topology(DictHost({**two_sockets_with_smt(), path: text}))
    assert wrong.value.path == path


def test_isolated_cpus_and_the_kinds_of_cores() -> None:
    files = {f"{BASE}/online": "0-3\n", f"{BASE}/isolated": "2-3\n"}
    hybrid = read_topology(DictHost({**files, "/sys/devices/cpu_atom/cpus": "1,3\n"})).cpus
    assert [(cpu.capacity, cpu.is_isolated) for cpu in hybrid] == [
        (1024, False),
        (512, False),
        (1024, True),
        (512, True),
    ]
    arm = {f"{BASE}/cpu{cpu}/cpu_capacity": f"{text}\n" for cpu, text in enumerate(("446", "1024"))}
    assert [cpu.capacity for cpu in read_topology(DictHost({**files, **arm})).cpus] == [
        446,
        1024,
        1024,
        1024,
    ]
    without_first = {**files, f"{BASE}/online": "1-2\n", f"{BASE}/cpu1/cpu_capacity": "446\n"}
    assert [cpu.capacity for cpu in read_topology(DictHost(without_first)).cpus] == [446, 1024]
    plain = read_topology(DictHost({f"{BASE}/online": "0-1\n", f"{BASE}/isolated": "\n"})).cpus
    assert not any(cpu.is_isolated or cpu.capacity < 1024 for cpu in plain)
