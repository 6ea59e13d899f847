"""The messages of pyroute2 that koordlet sends and receives, and what they lack.

The first ``netlink.Socket`` imports this module, so that pyroute2 is loaded where the network is
divided and nowhere else.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def _parts_of(package: str) -> Iterator[None]:
    """Inside the block, modules of ``package`` are imported without its ``__init__``, which for
    pyroute2 imports all of the library: 8.4 MiB instead of 1.2."""
    spec = None if package in sys.modules else importlib.util.find_spec(package)
    if spec is not None:
        sys.modules[package] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        if spec is not None:
            del sys.modules[package]


with _parts_of("pyroute2"):
    from pyroute2.netlink import (
        NETLINK_NETFILTER,
        NETLINK_ROUTE,
        nla,
        nla_base_struct,
        nlmsg,
        nlmsgerr,
    )
    from pyroute2.netlink.nfnetlink import NFNL_SUBSYS_NFTABLES, nfgen_msg
    from pyroute2.netlink.nfnetlink.nftsocket import (
        AsyncNFTSocket,
        nft_contains_expr,
        nft_has_comment,
        nft_regs,
        nft_rule_msg,
    )
    from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
    from pyroute2.netlink.rtnl.rtmsg import rtmsg
    from pyroute2.netlink.rtnl.tcmsg import cls_u32, sched_htb, tcmsg
    from pyroute2.netlink.rtnl.tcmsg.common_act import tca_act_prio


class _Htb(nla):
    """Without the tables of rates that pyroute2 computes for each class, two thirds of the time,
    and the kernel needs only where the link layer is not told."""

    nla_map = sched_htb.options.nla_map
    htb_glob = sched_htb.options.htb_glob
    ctab = rtab = nla.hex

    class htb_parms(nla_base_struct):  # noqa: N801
        fields = sched_htb.options.htb_parms.fields


class _U32(nla):
    nla_map = cls_u32.options.nla_map
    tca_act_prio = tca_act_prio
    police = u32_mark = u32_pcnt = nla.hex

    class u32_sel(cls_u32.options.u32_sel):  # noqa: N801
        def decode(self) -> None:
            """pyroute2 0.9 reads each key 4 bytes before its beginning."""
            nla.decode(self)
            first = self.offset + 20
            self["keys"] = [
                self.u32_key(data=self.data, offset=first + 16 * number)
                for number in range(self["nkeys"])
            ]
            for key in self["keys"]:
                key.decode()


class _TrafficMessage(nlmsg):
    """Without the statistics that come with each class, a third of the time."""

    prefix = tcmsg.prefix
    fields = tcmsg.fields
    nla_map = ((1, "TCA_KIND", "asciiz"), (2, "TCA_OPTIONS", "options"))

    @staticmethod
    def options(message: Any, **_: object) -> Any:
        return {"htb": _Htb, "u32": _U32}.get(message.get_attr("TCA_KIND"), nla.hex)


class _RuleMessage(nfgen_msg, nft_has_comment):
    prefix = nft_rule_msg.prefix
    nla_map = nft_rule_msg.nla_map

    class nft_expr(nft_contains_expr.nft_expr):  # noqa: N801
        class nft_socket(nft_regs):  # noqa: N801
            """With the key ``cgroupv2`` (3) and the level that goes with it (Linux 5.13)."""

            nla_map = (
                ("NFTA_SOCKET_UNSPEC", "none"),
                ("NFTA_SOCKET_KEY", "be32"),
                ("NFTA_SOCKET_DREG", "regs"),
                ("NFTA_SOCKET_LEVEL", "be32"),
            )


class ErrorMessage(nlmsg):
    """An error of which the kernel repeats the head of the request alone (NETLINK_CAP_ACK): the
    errors of a batch, each with all of its message, would not fit into the socket's buffer."""

    fields = (("error", "i"), *nlmsg.header)
    prefix = nlmsgerr.prefix
    nla_map = nlmsgerr.nla_map


_TABLES = {**AsyncNFTSocket.policy, **dict.fromkeys(range(6, 9), _RuleMessage)}
MESSAGES: dict[int, dict[int, type[nlmsg]]] = {
    NETLINK_ROUTE: {
        **dict.fromkeys(range(16, 20), ifinfmsg),
        **dict.fromkeys(range(24, 27), rtmsg),
        **dict.fromkeys(range(36, 47), _TrafficMessage),
    },
    NETLINK_NETFILTER: {
        **dict.fromkeys((0x10, 0x11), nfgen_msg),
        **{NFNL_SUBSYS_NFTABLES << 8 | kind: message for kind, message in _TABLES.items()},
    },
}
"""Family of netlink -> type of a message, that is RTM_* or NFT_MSG_* -> its class."""
