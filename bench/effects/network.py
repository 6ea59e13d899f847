"""Shares of a link by class, limits of pods, and what a request waits behind best-effort traffic.

Two network namespaces, joined by a veth pair, are the machine and the rest of the world. First our
own traffic classes alone: SYSTEM, LS and BE contend for the link, in both directions. Then a
daemon in the namespace of the machine, with two applications: LS asks and is answered 50 times a
second, BE fills the link with eight connections. The link ends in a queue, as that of a router;
who comes there last waits for all that is before it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import IO, Any

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
from bench.figures import Figure, NotMeasuredError, quantile
from bench.tree import enter, scratch_root
from koordlet.decision.traffic import HOST_SOCKETS, SHAPING
from koordlet.demo.process import die_with_parent
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.probe.net import probe_traffic

CONFIG = """
[sources]
kubepods = false

[nri]
enable = false

[alarms]
psi = false
throttled = false

[hooks.network-qos]
enable = {enable}

[slo.systemStrategy]
totalNetworkBandwidth = "{total_mbit}M"

[slo.resourceQOSStrategy.lsClass.networkQOS]
enable = true
egressRequest = {ls_percent}

[slo.resourceQOSStrategy.beClass.networkQOS]
enable = true
egressRequest = {be_percent}

[[applications]]
name = "bench-ls"
cgroup = "{parent}/ls"
qos = "LS"

[[applications]]
name = "bench-be"
cgroup = "{parent}/be"
qos = "BE"
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
_WARM_S = 2.0
_TIMEOUT_S = 60.0
# Bytes of a segment with all its heads against its payload.
_WIRE = 1514 / 1448


class Arm(msgspec.Struct):
    """What was seen in all rounds of one arm. ``*_mbit``: one value a round."""

    waits_ms: list[float] = []
    ls_mbit: list[float] = []
    be_mbit: list[float] = []

    def wait_ms(self, share: float) -> float:
        return quantile(self.waits_ms, share)


def run(smoke: bool, say: Callable[[str], None], repeat: int | None = None) -> list[Figure]:
    """Raises NotMeasuredError where the kernel has no classes."""
    usual, seconds = (1, 1.0) if smoke else (4, 6.0)
    with _net() as (net, features):
        total_mbit = link_mbit(net)
        say(f"three classes contend for {total_mbit} Mbit/s, in both directions")
        found = class_figures(net, features, total_mbit, seconds)
    with _net(HOST_SOCKETS) as (net, _):
        arms = measure(net, total_mbit, repeat or usual, seconds, say)
    return [Figure("the link", total_mbit, "Mbit/s"), *found, *_figures(arms, total_mbit)]


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
    net: Pair, total_mbit: float, rounds: int, seconds: float, say: Callable[[str], None]
) -> dict[str, Arm]:
    """``alone``, ``unmanaged``, ``managed``: LS asks while BE fills the link; ``shares``: managed,
    and LS fills it too. ``seconds``: of each, before it is stretched."""
    seconds = stretched(seconds, total_mbit)
    _narrow(net, total_mbit / _DIVIDED)
    cgroups = Cgroups(host := LinuxHost(), detect(host))
    parent = f"koordlet-bench-{os.getpid()}"
    arms = {name: Arm() for name in ("alone", "unmanaged", "managed", "shares")}

    def config(enable: bool) -> str:
        return CONFIG.format(
            parent=parent,
            enable=str(enable).lower(),
            total_mbit=total_mbit,
            ls_percent=LS_PERCENT,
            be_percent=BE_PERCENT,
        )

    with scratch_root(cgroups, parent) as make, ExitStack() as stack:
        for name in ("ls", "be"):
            make(f"{parent}/{name}")

        def program(
            space: Namespace, role: str, port: int, group: str = "", count: int = 1
        ) -> AbstractContextManager[Program]:
            """In the cgroup ``group``, or in none of ours."""
            join = partial(enter, cgroups, f"{parent}/{group}") if group else None
            return _program(space, role, port, join, count)

        stack.enter_context(program(net.peer, "echo", _ASK_PORT))
        ls_sink = stack.enter_context(program(net.peer, "sink", _BULK_PORT))
        be_sink = stack.enter_context(program(net.peer, "sink", _BE_PORT))
        child: Daemon = net.node.run(lambda: stack.enter_context(daemon(config(enable=False))))
        asker = stack.enter_context(program(net.node, "ask", _ASK_PORT, "ls"))

        def observe(arm: Arm) -> None:
            child.check()
            time.sleep(_WARM_S)
            for each in (asker, ls_sink, be_sink):
                each.ask()
            began = time.monotonic()
            time.sleep(seconds)
            arm.waits_ms += asker.ask()
            mbit = _WIRE * 8 / MBIT / (time.monotonic() - began)
            arm.ls_mbit.append(ls_sink.ask() * mbit)
            arm.be_mbit.append(be_sink.ask() * mbit)

        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            observe(arms["alone"])
            with ExitStack() as inner:
                inner.enter_context(program(net.node, "bulk", _BE_PORT, "be", BE_CONNECTIONS))
                observe(arms["unmanaged"])
                child.configure(config(enable=True))
                _wait(lambda: _divided(net), child)
                observe(arms["managed"])
                inner.enter_context(program(net.node, "bulk", _BULK_PORT, "ls"))
                observe(arms["shares"])
            child.configure(config(enable=False))
            _wait(lambda: not _divided(net), child)
    return arms


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


def _divided(net: Pair) -> bool:
    """Whether our classes are on the device of the node."""
    return "htb 6b64:4 " in net.node.shell(["tc", "class", "show", "dev", net.device])


def _wait(holds: Callable[[], bool], child: Daemon) -> None:
    """Raises TimeoutError."""
    end = time.monotonic() + _TIMEOUT_S
    while not holds():
        child.check()
        if time.monotonic() > end:
            raise TimeoutError(f"the classes did not come or go within {_TIMEOUT_S:.0f} s")
        time.sleep(0.1)


class Program:
    """One of ``network_load``, in a namespace."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self._stdin = stdin
        self._stdout = stdout

    def ask(self) -> Any:
        """What it saw since the last time."""
        self._stdin.write(b"\n")
        self._stdin.flush()
        return json.loads(self._stdout.readline())


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
        yield Program(process.stdin, process.stdout)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _figures(arms: dict[str, Arm], total_mbit: float) -> list[Figure]:
    alone, unmanaged, managed = (arms[name] for name in ("alone", "unmanaged", "managed"))
    shares = arms["shares"]
    ls, be = (sum(each) / len(each) for each in (shares.ls_mbit, shares.be_mbit))
    # SYSTEM sends nothing, and what it leaves goes to LS first.
    wanted_be = total_mbit * BE_PERCENT / 100
    wanted_ls = total_mbit - wanted_be
    return [
        *(
            Figure(f"an answer to LS {text}, {name}", arm.wait_ms(share), "ms")
            for name, share in (("p50", 0.5), ("p99", 0.99))
            for text, arm in (
                ("alone", alone),
                ("beside BE, unmanaged", unmanaged),
                ("beside BE, managed", managed),
            )
        ),
        Figure("unmanaged / managed, p50", unmanaged.wait_ms(0.5) / managed.wait_ms(0.5), "x"),
        Figure("unmanaged / managed, p99", unmanaged.wait_ms(0.99) / managed.wait_ms(0.99), "x"),
        Figure(
            "by the daemon: LS off what is left to it",
            100 * abs(ls - wanted_ls) / wanted_ls,
            "%",
            GOAL_PERCENT,
        ),
        Figure(
            "by the daemon: BE off its promise",
            100 * abs(be - wanted_be) / wanted_be,
            "%",
            GOAL_PERCENT,
        ),
    ]
