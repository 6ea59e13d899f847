"""Applications that are not there, as problems of the daemon."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, MutableMapping

import structlog

from koordlet.config.errors import ConfigError
from koordlet.config.load import Loaded
from koordlet.decision.snapshot import Application, Fault
from koordlet.engine.options import application_specs
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import Layout, detect
from koordlet.kernel.host import Host
from koordlet.kernel.parse import ParseError
from koordlet.state.absent import Existing
from koordlet.state.applications import ApplicationsSource

log = structlog.get_logger()

LOOK_S = 60.0
"""After so long it is looked again for names that are like those of absent ones."""
PART = "application "
COST = "nothing is measured or managed for it"
REMEDY = (
    "start it, or correct its configured name; `koordlet config check FILE` compares a "
    "file with what is there"
)


class Absences:
    """``problems``: where each absence stands as long as it lasts."""

    def __init__(
        self, host: Host, layout: Layout, cgroup_root: str, problems: MutableMapping[str, str]
    ) -> None:
        self._host = host
        self._layout = layout
        self._root = cgroup_root
        self._problems = problems
        self._present: dict[str, bool] = {}
        self._looked_s = -math.inf

    def follow(self, applications: Iterable[Application]) -> None:
        """One line in the log when one comes or goes."""
        now, existing = self._host.monotonic(), None
        again = now - self._looked_s >= LOOK_S
        before, self._present = self._present, {}
        for each in applications:
            part = part_of(each)
            self._present[part] = each.present
            if each.present:
                self._problems.pop(part, None)
                if before.get(part) is not True:
                    log.info("application present", name=each.name, cgroup=each.cgroup)
                continue
            is_new = before.get(part) is not False
            if is_new or again:
                existing = existing or Existing(self._host, self._layout, self._root)
                self._problems[part] = existing.why_absent(each)
                self._looked_s = now
            if is_new:
                log.warning("application absent", name=each.name, why=self._problems[part])
        for part in before.keys() - self._present.keys():
            self._problems.pop(part, None)


def part_of(application: Application) -> str:
    return f"{PART}{application.name}"


def warnings(host: Host, loaded: Loaded) -> Iterator[ConfigError]:
    """Faults of configured applications that are not on this machine; none where it has
    no cgroups, as where a file is checked for another one."""
    paths = loaded.config.paths
    try:
        layout = detect(host, cgroup_root=paths.cgroup_root, proc_root=paths.proc_root)
    except (OSError, ParseError):
        return
    found, faults = asyncio.run(_look(host, layout, loaded))
    existing = Existing(host, layout, paths.cgroup_root)
    names = [each.name for each in loaded.config.applications]
    for each in found:
        if not each.present:
            key = "systemd_unit" if each.systemd_unit else "cgroup"
            where = f"applications[{names.index(each.name)}].{key}"
            origin = loaded.origins.get(where, loaded.file)
            file, _, line = origin.rpartition(":")
            message = f"application {each.name}: {existing.why_absent(each)}"
            yield ConfigError(file or origin, where, message, int(line) if file else None)
    for fault in faults:
        yield ConfigError(loaded.file, fault.path, f"{fault.subject}: {fault.message}")


async def _look(
    host: Host, layout: Layout, loaded: Loaded
) -> tuple[tuple[Application, ...], tuple[Fault, ...]]:
    root = loaded.config.paths.cgroup_root
    source = ApplicationsSource("config", host, Cgroups(host, layout), root)
    source.set(application_specs(loaded.config))
    try:
        source.start(lambda: None)
        return source.applications(), source.faults()
    finally:
        source.stop()
