"""How the traffic of a node shall be divided: classes, and who belongs to which
(docs/reference/hooks.md
2.11). Pure data; rates are in bits per second, 1000 of which are a kbit/s."""

from __future__ import annotations

import msgspec

MAJOR = 0x6B64
"""Handle of our root qdisc: one that nobody else picks, so that it tells which are ours."""

SHAPING = "tc.htb"
INGRESS = "tc.ifb"
MARKS = "nft.priority"
HOST_SOCKETS = "nft.socket-cgroupv2"
NET_CLS_MARKS = "nft.net-cls"
"""Features of a kernel that has all it takes: classes, the same for what arrives, classes by
address where it is hidden on the wire, by cgroup, by ``net_cls.classid``."""


class Rate(msgspec.Struct, frozen=True):
    """``min_bps`` is guaranteed, ``max_bps`` the ceiling; 0 = none. The first is never above the
    second, where that is set."""

    min_bps: int = 0
    max_bps: int = 0


class BandwidthShare(msgspec.Struct, frozen=True):
    """What a class, or a pod, may send and receive."""

    egress: Rate = Rate()
    ingress: Rate = Rate()


class TrafficClass(msgspec.Struct, frozen=True):
    """One class of the link. ``priority``: the smallest is served first. ``part_of``: the minor of
    the class whose share it uses, 0 = it has its own."""

    name: str
    minor: int
    priority: int
    share: BandwidthShare
    part_of: int = 0

    @property
    def class_id(self) -> int:
        """As ``net_cls.classid`` holds it."""
        return MAJOR << 16 | self.minor


class Member(msgspec.Struct, frozen=True):
    """A pod or application whose traffic is in the class ``minor``.

    It is told by ``ips``, its own addresses; where it has none (host network, or not known yet)
    by its cgroup alone, which works for what it sends.
    """

    minor: int
    cgroup: str
    ips: tuple[str, ...] = ()


class TrafficPlan(msgspec.Struct, frozen=True):
    """``total_bps``: the link, each way. What no member sends is in the class ``default_minor``."""

    total_bps: int
    default_minor: int
    classes: tuple[TrafficClass, ...]
    members: tuple[Member, ...]
