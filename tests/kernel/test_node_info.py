"""What a NodeResourceTopology says of the machine."""

from __future__ import annotations

import pytest

from koordlet.kernel.node_info import CpuInfo, NumaMemory, cpu_info, numa_memory
from koordlet.kernel.parse import ParseError
from tests.kernel.dict_host import DictHost

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
MEMINFO = "\n".join(
    f"Node 0 {name}: {size} kB"
    for name, size in {
        "MemTotal": 8 << 20,
        "MemFree": 1 << 20,
        "Active(file)": 0,
        "Inactive(file)": 0,
        "SReclaimable": 0,
    }.items()
)


@pytest.mark.parametrize(
    ("files", "info"),
    [
        ({}, CpuInfo()),
        (
            {
                "/proc/cpuinfo": "processor : 0\nvendor_id : GenuineIntel\nmodel name : Xeon 1\n\n"
                "processor : 1\nvendor_id : Other\nmodel name : Other\n",
                f"{CPU}/smt/active": "1\n",
                f"{CPU}/intel_pstate/no_turbo": "0\n",
                "/sys/fs/resctrl/info/L3/cbm_mask": "fffff\n",
            },
            CpuInfo("Xeon 1", "GenuineIntel", True, True, "fffff"),
        ),
        ({"/proc/cpuinfo": "Model Name : Kunpeng\n"}, CpuInfo("Kunpeng")),
        ({f"{CPU}/intel_pstate/no_turbo": "1\n", f"{CPU}/cpufreq/boost": "1\n"}, CpuInfo()),
        ({f"{CPU}/cpufreq/boost": "1\n"}, CpuInfo(is_turbo_enabled=True)),
        ({"/proc/cpuinfo": "", f"{CPU}/smt/active": "0\n"}, CpuInfo()),
    ],
)
def test_cpu_info(files: dict[str, str], info: CpuInfo) -> None:
    assert cpu_info(DictHost(files)) == info


def test_numa_memory() -> None:
    pages = "hugepages/hugepages-{}kB/nr_hugepages"
    host = DictHost(
        {
            f"{NODE}/node0/meminfo": MEMINFO,
            f"{NODE}/node0/{pages.format(2048)}": "512\n",
            f"{NODE}/node0/{pages.format(1048576)}": "1\n",
            f"{NODE}/node2/meminfo": MEMINFO,
        }
    )
    both = {"hugepages-2Mi": 1 << 30, "hugepages-1Gi": 1 << 30}
    none = dict.fromkeys(both, 0)
    assert numa_memory(host) == {0: NumaMemory(8 << 30, both), 2: NumaMemory(8 << 30, none)}


def test_what_cannot_be_read() -> None:
    path = f"{NODE}/node0/hugepages/hugepages-2048kB/nr_hugepages"
    with pytest.raises(ParseError):
        numa_memory(DictHost({f"{NODE}/node0/meminfo": MEMINFO, path: "many\n"}))
    with pytest.raises(OSError):
        numa_memory(DictHost({f"{NODE}/node0/cpulist": "0\n"}))
