"""One arm: a service, decoys that come and go, and one antagonist after the other."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from bench.figures import NotMeasuredError
from bench.interference.arms import FILLER, LIMIT_BYTES, UNDECLARED, VICTIM, Arm, Length
from bench.interference.cast import Cast, Process, answered
from bench.interference.decoys import HARMLESS, slowed
from bench.interference.detectors import Detectors
from bench.interference.disk import directory
from bench.interference.load import prepare
from bench.interference.score import Injection
from bench.tree import entered, scratch_root
from koordlet.collectors.waits.suspicion import STALL_MS_PER_S
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.protocol.qos import QoSClass

_LONGEST_LEARN_S = 150.0
_LAST_S = 7.0
"""After the last injection: a name that comes late, or does not go, is seen."""
_TOGGLES = 0.15
"""How likely a decoy begins or ends in a second."""
_OWN_SHARES = 10240
"""The weight of systemd/koordlet.slice."""
_ELSEWHERE = "decoy-elsewhere-"


class Scene:
    """Cgroups, processes and detectors of one arm; they end with ``stack``."""

    def __init__(self, arm: Arm, stack: ExitStack, say: Callable[[str], None]) -> None:
        host = LinuxHost()
        self._cgroups = Cgroups(host, detect(host))
        self._arm = arm
        self._name = f"koordlet-bench-{os.getpid()}.slice"
        self._say = say
        self._folder = stack.enter_context(directory(say, slow=arm.resource == "io"))
        make = stack.enter_context(scratch_root(self._cgroups, self._name))
        # As the daemon's, which is work of the machine like any other, but not that of everybody.
        own = f"koordlet-bench-{os.getpid()}-own.slice"
        stack.enter_context(scratch_root(self._cgroups, own))
        self._cgroups.write(own, Resource.CPU_SHARES, _OWN_SHARES)
        stack.enter_context(entered(self._cgroups, own))
        self._decoys = {
            **{f"decoy-idle-{name}": name for name in arm.idle},
            **{f"decoy-{name}": name for name in arm.decoys},
            **{f"{_ELSEWHERE}{name}": name for name in arm.elsewhere},
        }
        groups = (VICTIM, *arm.antagonists, *self._decoys, FILLER)
        undeclared = tuple(f"{UNDECLARED}{name}" for name in arm.antagonists)
        for group in (*groups, *undeclared):
            make(f"{self._name}/{group}")
        if arm.limited:
            self._cgroups.write(self._name, Resource.MEMORY_LIMIT, LIMIT_BYTES)
        applications = [
            Application(
                group, f"{self._name}/{group}", QoSClass.LS if group == VICTIM else QoSClass.BE
            )
            for group in groups
        ]
        self.detectors = Detectors(host, self._cgroups, arm, self._name, applications, stack)
        self._cast = Cast(self._cgroups, self._name, self._folder, stack)
        self._running: frozenset[str] = frozenset()

    def play(self, length: Length, count: int, draw: random.Random) -> list[Injection]:
        """Raises NotMeasuredError where the kernel does not measure the resource."""
        prepare(f"{self._folder}/{VICTIM}")
        if self._arm.limited:
            filler = self._cast.start("fill", FILLER)
            self._cast.release([filler])
            assert filler.popen.stdout is not None
            filler.popen.stdout.readline()  # it is full
        service = self._cast.start(self._arm.service, VICTIM)
        self._cast.release([service])
        decoys = self._harmless_decoys(service, length.check)
        self._learn(closely=length.closely)
        injections: list[Injection] = []
        for number in range(count):
            culprit = self._arm.antagonists[number % len(self._arm.antagonists)]
            copies = 3 if culprit == "spin" else 1
            # Each of them once declared and once not, then the other way round.
            turn = number // len(self._arm.antagonists) + number
            group = culprit if turn % 2 == 0 else f"{UNDECLARED}{culprit}"
            started = [self._cast.start(culprit, group) for _ in range(copies)]
            self._watch(length.pause + length.more * draw.random(), decoys, draw)
            start = self._cast.release(started)
            harms_from = self._go_on(start, length.injection, service, decoys, draw)
            for each in started:
                self._cast.end(each)
            self._cast.empty(group)
            injections.append(Injection(group, start, time.monotonic(), harms_from))
        self._watch(_LAST_S, decoys, draw)
        self.detectors.end()
        return injections

    def _go_on(
        self,
        start: float,
        seconds: float,
        service: Process,
        decoys: Sequence[Process],
        draw: random.Random,
    ) -> float | None:
        """Lets an antagonist go on; since when it does harm, None: it does none. Elsewhere than
        below a limit of memory each counts from its start: on a busy machine the service's latency
        says too little about a single one.

        Below a limit of memory nobody waits until clean pages have become dirty ones. There it
        goes on for so long from the first second in which the service stalls.
        """
        harms_from = None if self._arm.limited else start
        answered(service)
        while time.monotonic() - start < 3 * seconds:
            second = time.monotonic()
            self._watch(1.0, decoys, draw)
            answered(service)  # its pipe must not fill
            if harms_from is None and self.detectors.waits_ms_per_s >= STALL_MS_PER_S:
                harms_from = second
            if harms_from is not None and time.monotonic() - harms_from >= seconds:
                break
        return harms_from

    def _learn(self, *, closely: bool) -> None:
        began = time.monotonic()
        self._watch(3.0)
        self.detectors.check()
        while not self.detectors.have_learnt:
            if closely:
                self.detectors.look_closely()
            self._watch(1.0)
            if time.monotonic() - began > _LONGEST_LEARN_S:
                raise NotMeasuredError(f"no windows after {_LONGEST_LEARN_S:.0f} s")
        self._say(f"learnt for {time.monotonic() - began:.0f} s")

    def _harmless_decoys(self, service: Process, seconds: float) -> list[Process]:
        """Those that do not slow the service down; stopped."""
        found = []
        for group, name in self._decoys.items():
            if group.startswith("decoy-idle-"):
                try:
                    self._cgroups.write(f"{self._name}/{group}", Resource.CPU_IDLE, 1)
                except (Unsupported, OSError) as error:
                    self._say(f"no decoy {group}: {error}")
                    continue
            decoy = self._cast.start(name, group, elsewhere=group.startswith(_ELSEWHERE))
            decoy.stop()
            self._cast.release([decoy])
            ratio = slowed(service, decoy, seconds)
            harmless = ratio <= HARMLESS
            what = group if harmless else f"{group} is left out"
            self._say(f"{what}: latency x {ratio:.2f}")
            if harmless:
                found.append(decoy)
            else:
                self._cast.end(decoy)
        return found

    def _watch(
        self,
        seconds: float,
        decoys: Sequence[Process] = (),
        draw: random.Random | None = None,
    ) -> None:
        """Turns of the detectors at each full second, as the daemon's: an antagonist does not
        start with one of them. Decoys begin and end as ``draw`` has it."""
        end = time.monotonic() + seconds
        while (turn_s := math.floor(time.monotonic()) + 1.0) < end:
            time.sleep(turn_s - time.monotonic())
            self.detectors.turn()
            for each in decoys:
                if draw is not None and draw.random() < _TOGGLES:
                    self._running ^= {each.group}
                    if each.group in self._running:
                        each.go_on()
                    else:
                        each.stop()
        time.sleep(max(end - time.monotonic(), 0.0))
