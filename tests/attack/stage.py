"""A real daemon on real cgroups that the attack makes: with values of their own, so that a
forgotten one shows."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.cgroup.table import TABLE
from tests.daemon.child import KOORDLET, Child, children, fill_cpuset, remove

SETTINGS = tuple(row.resource for row in TABLE.values() if not row.read_only)
MIB = 1 << 20
BEFORE: tuple[tuple[str, Resource, int], ...] = (
    ("ls", Resource.CPU_SHARES, 777),
    ("ls", Resource.CPU_QUOTA_US, 150_000),
    ("be", Resource.CPU_SHARES, 33),
    ("be", Resource.MEMORY_LIMIT, 512 * MIB),
    ("be/inner", Resource.CPU_QUOTA_US, 80_000),
    ("be/inner", Resource.CPU_SHARES, 4321),
)
POLICIES = (
    "",
    "[slo.resourceQOSStrategy.beClass.memoryQOS]\nenable = true\nthrottlingPercent = 80\n",
    "[slo.resourceQOSStrategy.lsClass.memoryQOS]\nenable = true\nminLimitPercent = 50\n",
    '[slo.cpuBurstStrategy]\npolicy = "auto"\n',
    "[slo.resourceQOSStrategy.lsClass.cpuQOS]\nenable = true\ngroupIdentity = 2\n",
)
"""What is switched on beside the suppression of best effort."""
_numbers = itertools.count(7000)

Values = dict[tuple[str, Resource], bytes]


class Stage:
    """``groups``: the cgroups whose files are compared."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.groups = (child.ls, child.be, f"{child.be}/inner")
        self._log = (child.directory / "log").open("ab")

    def values(self) -> Values:
        """Every setting, byte for byte."""
        found: Values = {}
        for group, resource in itertools.product(self.groups, SETTINGS):
            with suppress(Unsupported, OSError):
                found[group, resource] = self.child.cgroups.read_raw(group, resource)
        return found

    def set_up(self) -> None:
        for name, resource, value in BEFORE:
            group = self.child.ls if name == "ls" else name.replace("be", self.child.be, 1)
            with suppress(Unsupported, OSError):
                self.child.cgroups.write(group, resource, value)

    def configure(self, chance: random.Random) -> None:
        """Another policy; a daemon that runs takes it at its next SIGHUP."""
        number = chance.randrange(len(POLICIES) + 1)
        self.child.configure("".join(chance.sample(POLICIES, number % len(POLICIES))))
        text = self.child.config.read_text()
        if chance.random() < 0.5:
            self.child.config.write_text(text.replace('"cfsQuota"', '"cpuset"'))

    def start(self, *before: str) -> subprocess.Popen[bytes]:
        """The daemon, in a process group of its own. ``before``: words before its command."""
        return self.spawn("run", *before)

    def spawn(self, command: str, *before: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*before, *KOORDLET, command, "--config", str(self.child.config)],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, start_new_session=True,
        )  # fmt: skip

    def restore(self, before: Values, counts: Counter[str]) -> None:
        """Put everything back; then every file is as it was."""
        done = self.child.restore()
        assert done.returncode == 0, done.stdout + done.stderr + self.log()
        after = self.values()
        assert not difference(before, after), "\n".join(difference(before, after))
        counts["restores"] += 1
        counts["files compared"] += len(before)

    def log(self) -> str:
        """The end of it."""
        return self.child.log()[-4000:]

    def close(self) -> None:
        self._log.close()


def kill(process: subprocess.Popen[bytes]) -> None:
    """It and what traces it, at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def difference(before: Values, after: Values) -> Sequence[str]:
    return [
        f"{group} {resource}: {after.get((group, resource))!r}, was {raw!r}"
        for (group, resource), raw in before.items()
        if after.get((group, resource)) != raw
    ]


@contextmanager
def stage(directory: Path) -> Iterator[Stage]:
    """A stage for one attack; nothing of it is left."""
    with children(directory, next(_numbers)) as child:
        roots = [Path(root) for root in child.cgroups.layout.roots]
        made = Stage(child)
        try:
            for root in roots:
                (root / child.be / "inner").mkdir()
                fill_cpuset(root, f"{child.be}/inner")
            made.set_up()
            yield made
        finally:
            made.close()
            for root in roots:
                remove(root / child.be / "inner")
