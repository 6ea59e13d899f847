"""What the classes use of L3 cache and memory bandwidth, as far as the hardware counts it
(spec/metrics.md 2.14; D-5 mended. Linux ``Documentation/filesystems/resctrl.rst``)."""

from __future__ import annotations

from koordlet.collectors.base import CollectorPart, Round, SlowCollectorOptions
from koordlet.decision import metrics
from koordlet.decision.resctrl import GROUP_PREFIX
from koordlet.kernel.host import Host
from koordlet.kernel.resctrl import monitored, mount_point
from koordlet.protocol.qos import QoSClass

_LLC = "llc_occupancy"
_TRAFFIC = ("mbm_local_bytes", "mbm_total_bytes")


class ResctrlCollector:
    """Of groups that strategy ``resctrl-qos`` has made; without any there is nothing to measure."""

    name = "resctrl"
    optional = True

    def __init__(self, host: Host, interval_s: float = 10.0, sys_root: str = "/sys") -> None:
        self.interval_s = interval_s
        self._host = host
        self._root = mount_point(sys_root)

    def collect(self, round_: Round) -> None:
        for qos in (QoSClass.LSR, QoSClass.LS, QoSClass.BE):
            group = f"{self._root}/{GROUP_PREFIX}{qos}"
            if not self._host.exists(f"{group}/mon_data"):
                continue
            try:
                found = monitored(self._host, group)
            except (OSError, ValueError) as error:
                round_.skip(f"{group}/mon_data", error)
                continue
            for (cache, name), value in found.items():
                if name == _LLC:
                    round_.add(metrics.RESCTRL_LLC, (qos.value, str(cache)), value)
                elif name in _TRAFFIC:
                    round_.add(metrics.RESCTRL_MB, (qos.value, str(cache), name), value)

    def close(self) -> None:
        """Nothing is kept open."""


COLLECTOR = CollectorPart(
    name=ResctrlCollector.name,
    help="L3 cache and memory traffic of classes, where resctrl counts.",
    options=SlowCollectorOptions(),
    make=lambda machine, options: ResctrlCollector(
        machine.host, options.interval_seconds, machine.sys_root
    ),
    metrics=(
        metrics.RESCTRL_LLC,
        metrics.RESCTRL_MB,
    ),
)
