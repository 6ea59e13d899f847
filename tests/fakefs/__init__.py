"""The fake kernel: cgroups, proc, PSI and topology in memory, refusing what Linux refuses."""

from koordlet_fakefs.faults import Faults, FaultyFiles
from koordlet_fakefs.host import FakeHost
from koordlet_fakefs.machine import Process, Resctrl
from koordlet_fakefs.topology import FakeCpu, FakeTopology, shape

__all__ = [
    "FakeCpu",
    "FakeHost",
    "FakeTopology",
    "Faults",
    "FaultyFiles",
    "Process",
    "Resctrl",
    "shape",
]
