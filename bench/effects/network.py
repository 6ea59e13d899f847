"""Shares of a link by class, limits of pods, and what a request waits behind best-effort traffic.

Two network namespaces, joined by a veth pair, are the machine and the rest of the world. First our
own traffic classes alone: SYSTEM, LS and BE contend for the link, in both directions. Then a
daemon in the namespace of the machine, with two applications: LS asks and is answered 50 times a
second, BE fills the link with eight connections. The link ends in a queue, as that of a router;
who comes there last waits for all that is before it. Arms of these two in slices; connections that
fill the link are made anew for each, because a window that fits one arm takes seconds to fit
another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from typing import Any

import msgspec

from bench.child import Daemon, daemon
from bench.effects.network_classes import GOAL_PERCENT, MBIT, class_figures, stretched
from bench.effects.network_pair import (
    NODE_IPS,
    PEER_IP,
    Flow,
    Namespace,
    Pair,
    pair,
    rates_bps,
    udp,
)
from bench.effects.slices import (
    SMOKE,
    ArmSlice,
    Size,
    Watch,
    alternating,
    latency_ms,
    latency_ratio,
    mean_value,
    off_percent,
    waits_figures,
)
from bench.effects.stage import stage, until
from bench.figures import Figure, Measured, NotMeasuredError
from bench.tree import enter
from koordlet.decision.traffic import HOST_SOCKETS, SHAPING
from koordlet.demo.process import die_with_parent
from koordlet.kernel.probe.net import probe_traffic

CONFIG = """
[nri]
enable = false

[alarms]
psi = false
throttled = false

[hooks.network-qos]
enable = true

[slo.systemStrategy]
totalNetworkBandwidth = "{total_mbit}M"

[slo.resourceQOSStrategy.lsClass.networkQOS]
enable = true
egressRequest = {ls_percent}

[slo.resourceQOSStrategy.beClass.networkQOS]
enable = true
egressRequest = {be_percent}
"""
_LEAST_MBIT, _MOST_MBIT = 2, 20
# Of what packets of full size make when nothing else runs: TCP, requests and a daemon need more.
_LINK_SHARE = 0.05
LS_PERCENT, BE_PERCENT = 50, 30
BE_CONNECTIONS = 8
# What the daemon divides, of what the link carries: the queue has to be where the classes are.
_DIVIDED = 0.9
_QUEUE_S = 0.25
_ASK_PORT, _BULK_PORT, _BE_PORT = 7001, 7002, 7003
# Bytes of a segment with all its heads against its payload.
_WIRE = 1514 / 1448
_TEXTS = {
    "alone": "alone",
    "unmanaged": "beside BE, unmanaged",
    "managed": "beside BE, managed",
}


class LinkSlice(ArmSlice, frozen=True):
    """``latencies_ms``: of answers to LS; ``*_mbit``: what else arrives of each class."""

    ls_mbit: float
    be_mbit: float


def run(smoke: bool, say: Callable[[str], None], size: Size | None = None) -> Measured:
    """Raises NotMeasuredError where the kernel has no classes."""
    size = size or (SMOKE if smoke else Size())
    with _net() as (net, features):
        total_mbit = link_mbit(net)
        say(f"three classes contend for {total_mbit} Mbit/s, in both directions")
        found = class_figures(net, features, total_mbit, 1.0 if smoke else 6.0)
    with _net(HOST_SOCKETS) as (net, _):
        slices = measure(net, total_mbit, size, say)
    figures = [Figure("the link", total_mbit, "Mbit/s"), *found, *_figures(slices, total_mbit)]
    return Measured(figures, size.seed, slices)


@contextmanager
def _net(*needed: str) -> Iterator[tuple[Pair, frozenset[str]]]:
    with ExitStack() as stack:
        try:
            net = stack.enter_context(pair())
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotMeasuredError(f"no pair of network namespaces: {error}") from None
        for each in (capabilities := net.node.run(probe_traffic)):
            if each.feature in (SHAPING, *needed) and not each.supported:
                raise NotMeasuredError(f"{each.feature}: {each.why}")
        yield net, frozenset(each.feature for each in capabilities if each.supported)


def link_mbit(net: Pair) -> int:
    """What to divide: 20 Mbit/s, and less on an emulated CPU. Raises NotMeasuredError where
    programs carry so little that no share of it means anything."""
    flows = [Flow(udp(net.node, ip), udp(net.peer, PEER_IP)) for ip in NODE_IPS]
    carried_mbit = sum(rates_bps(flows)) / MBIT
    if carried_mbit < 4 * _LEAST_MBIT:
        raise NotMeasuredError(f"programs carry {carried_mbit:.1f} Mbit/s here, too little")
    return max(_LEAST_MBIT, min(_MOST_MBIT, int(_LINK_SHARE * carried_mbit)))


def measure(
    net: Pair, total_mbit: float, size: Size, say: Callable[[str], None]
) -> list[LinkSlice]:
    """``alone``, ``unmanaged``, ``managed``: LS asks while BE fills the link; ``shares``: managed,
    and LS fills it too. Slices are longer where the link is slow."""
    size = msgspec.structs.replace(size, slice_s=stretched(size.slice_s, total_mbit))
    _narrow(net, total_mbit / _DIVIDED)
    rest = CONFIG.format(total_mbit=total_mbit, ls_percent=LS_PERCENT, be_percent=BE_PERCENT)
    with stage("ls", "be") as on, closing(Watch(on)) as watch, ExitStack() as stack:

        def program(
            space: Namespace, role: str, port: int, group: str = "", count: int = 1
        ) -> AbstractContextManager[Program]:
            """Place a command in this group of the stage, or in none."""
            join = partial(enter, on.cgroups, on.groups[group]) if group else None
            return _program(space, role, port, join, count)

        stack.enter_context(program(net.peer, "echo", _ASK_PORT))
        sinks = [
            stack.enter_context(program(net.peer, "sink", port)) for port in (_BULK_PORT, _BE_PORT)
        ]
        config = on.config({"ls": "LS", "be": "BE"}, rest)
        child: Daemon = net.node.run(lambda: stack.enter_context(daemon(config)))
        asker = stack.enter_context(program(net.node, "ask", _ASK_PORT, "ls"))
        senders = stack.enter_context(ExitStack())

        def begin(*, be: bool = False, managed: bool = False, ls: bool = False) -> None:
            senders.close()
            if managed:
                child.resume()
            else:
                child.pause()
            until(lambda: _divided(net, child) is managed, "the classes did not come or go")
            if be:
                senders.enter_context(program(net.node, "bulk", _BE_PORT, "be", BE_CONNECTIONS))
            if ls:
                senders.enter_context(program(net.node, "bulk", _BULK_PORT, "ls"))

        def look() -> Callable[[str, int], LinkSlice]:
            for each in (asker, *sinks):
                each.ask()
            end = watch.begin()

            def found(arm: str, number: int) -> LinkSlice:
                waits_ms, arrived, span = asker.ask(), [each.ask() for each in sinks], end()
                seconds = span.used.seconds
                ls_mbit, be_mbit = (_WIRE * 8 / MBIT * each / seconds for each in arrived)
                return LinkSlice(
                    arm, number, seconds, tuple(waits_ms), span.waits, ls_mbit, be_mbit
                )

            return found

        arms: dict[str, Callable[[], None]] = {
            "alone": begin,
            "unmanaged": partial(begin, be=True),
            "managed": partial(begin, be=True, managed=True),
            "shares": partial(begin, be=True, managed=True, ls=True),
        }
        return alternating(arms, size, say, look)


def _narrow(net: Pair, mbit: float) -> None:
    """The way from the node to the peer carries ``mbit`` with a queue in front, which koordlet
    does not see: it is on the far side, as the next router's is."""
    queue_bytes = int(mbit * MBIT / 8 * _QUEUE_S)
    net.peer.ip("link add name narrow type ifb", "link set narrow up")
    to_it = "protocol all u32 match u32 0 0 action mirred egress redirect dev narrow"
    for command in (
        "qdisc add dev v1 handle ffff: ingress",
        f"filter add dev v1 parent ffff: {to_it}",
        f"qdisc add dev narrow root tbf rate {mbit:.3f}mbit burst 32kb limit {queue_bytes}",
    ):
        net.peer.shell(["tc", *command.split()])


def _divided(net: Pair, child: Daemon) -> bool:
    """Whether our classes are on the device of the node."""
    child.check()
    return "htb 6b64:4 " in net.node.shell(["tc", "class", "show", "dev", net.device])


class Program:
    """One of ``network_load``, in a namespace."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def ask(self) -> Any:
        """What it saw since the last time."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def _program(
    space: Namespace, role: str, port: int, join: Callable[[int], None] | None, count: int
) -> Iterator[Program]:
    parent = os.getpid()
    words = [role, PEER_IP, str(port), *([str(count)] if role == "bulk" else [])]
    command = [sys.executable, "-m", "bench.effects.network_load", *words]
    process = space.run(
        lambda: subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: die_with_parent(parent),
        )
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        if join is not None:
            join(process.pid)
        process.stdin.write(b"g")
        process.stdin.flush()
        if not process.stdout.readline():
            raise RuntimeError(f"{' '.join(command)} ended")
        yield Program(process)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _figures(slices: Sequence[LinkSlice], total_mbit: float) -> list[Figure]:
    # SYSTEM sends nothing, and what it leaves goes to LS first.
    wanted_be = total_mbit * BE_PERCENT / 100
    wanted_ls = total_mbit - wanted_be
    ls = mean_value(slices, "shares", lambda each: each.ls_mbit)
    be = mean_value(slices, "shares", lambda each: each.be_mbit)
    shares = (("p50", 0.5), ("p99", 0.99))
    return [
        *(
            Figure.of(f"an answer to LS {text}, {name}", latency_ms(slices, arm, share), "ms")
            for name, share in shares
            for arm, text in _TEXTS.items()
        ),
        *(
            Figure.of(
                f"unmanaged / managed, {name}",
                latency_ratio(slices, "unmanaged", share, to="managed"),
                "x",
            )
            for name, share in shares
        ),
        Figure.of(
            "by the daemon: LS off what is left to it",
            off_percent(ls, wanted_ls),
            "%",
            GOAL_PERCENT,
        ),
        Figure.of(
            "by the daemon: BE off its promise", off_percent(be, wanted_be), "%", GOAL_PERCENT
        ),
        *waits_figures(slices, tuple(_TEXTS)),
    ]
