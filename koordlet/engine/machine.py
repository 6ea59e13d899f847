"""What the machine is made of, read at the start and again as CPUs and memory come and go."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import NamedTuple

from koordlet.config.schema import PathsTable
from koordlet.decision.snapshot import Topology
from koordlet.kernel.host import Host
from koordlet.kernel.parse import ParseError
from koordlet.kernel.topology import read_topology
from koordlet.state.node import NO_HARDWARE, Hardware, memory_bytes, read_hardware


class Machine(NamedTuple):
    topology: Topology
    memory_bytes: int
    hardware: Hardware


UNKNOWN = Machine(Topology(()), 0, NO_HARDWARE)


def read_machine(
    host: Host, paths: PathsTable, problems: MutableMapping[str, str], known: Machine = UNKNOWN
) -> Machine:
    """What cannot be read stays as ``known``, and is named among ``problems`` until it can."""
    topology, total_bytes, hardware = known
    try:
        topology = read_topology(host, paths.sys_root)
        total_bytes = memory_bytes(host, paths.proc_root)
        problems.pop("topology", None)
    except (OSError, ParseError) as error:
        problems["topology"] = str(error)
    try:
        hardware = read_hardware(host, sys_root=paths.sys_root, proc_root=paths.proc_root)
        problems.pop("hardware", None)
    except (OSError, ParseError) as error:
        problems["hardware"] = str(error)
    return Machine(topology, total_bytes, hardware)
