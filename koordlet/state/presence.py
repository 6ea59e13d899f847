"""Which of some cgroups are there, noticed by inotify on the directories above them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from koordlet.decision.snapshot import Fault
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host
from koordlet.state.watching import Watching


class Presence:
    """Follows cgroups in one hierarchy (``Layout.reference_root``).

    ``on_move`` gets those that came or went, outside of any call made here. Paths are such as
    ``kernel.cgroup.cgroups.check_path`` accepts.
    """

    def __init__(
        self, source: str, host: Host, layout: Layout, on_move: Callable[[list[str]], None]
    ) -> None:
        self._host = host
        self._root = layout.reference_root
        self._on_move = on_move
        self._watch = Watching(source, host, self._event)
        self._there: dict[str, bool] = {}
        self._above: Counter[str] = Counter()
        """Cgroup -> how many of those we follow are below it."""

    def __contains__(self, cgroup: str) -> bool:
        return self._there.get(cgroup, False)

    def follow(self, cgroups: Iterable[str]) -> None:
        new = [cgroup for cgroup in cgroups if cgroup not in self._there]
        for cgroup in new:
            self._above.update(_ancestors(cgroup))
        self._look(new)

    def leave(self, cgroups: Iterable[str]) -> None:
        for cgroup in cgroups:
            if self._there.pop(cgroup, None) is None:
                continue
            for above in _ancestors(cgroup):
                self._above[above] -= 1
                if not self._above[above]:
                    del self._above[above]
                    self._watch.remove(self._path(above))

    def rescan(self) -> None:
        """Looks at all of them again, without ``on_move``."""
        self._look(self._there)

    def close(self) -> None:
        self._watch.close()

    def faults(self) -> tuple[Fault, ...]:
        return self._watch.faults()

    def _event(self, directory: str, child: str) -> None:
        above = directory[len(self._root) :].strip("/")
        if not child:  # events were lost
            concerned = list(self._there)
        else:
            path = f"{above}/{child}" if above else child
            if path not in self._above and path not in self._there:
                return
            concerned = [c for c in self._there if c == path or c.startswith(path + "/")]
        before = {cgroup: self._there[cgroup] for cgroup in concerned}
        self._look(concerned)
        moved = [cgroup for cgroup, was in before.items() if self._there[cgroup] is not was]
        if moved:
            self._on_move(moved)

    def _look(self, cgroups: Iterable[str]) -> None:
        """Watches first, then looks: what comes in between is seen by one or the other."""
        cgroups = tuple(cgroups)
        for above in sorted({above for cgroup in cgroups for above in _ancestors(cgroup)}):
            try:
                self._watch.add(self._path(above))
            except FileNotFoundError:
                continue  # what is above it is watched
        for cgroup in cgroups:
            self._there[cgroup] = self._host.exists(self._path(cgroup))

    def _path(self, cgroup: str) -> str:
        return f"{self._root}/{cgroup}" if cgroup else self._root


def _ancestors(cgroup: str) -> Iterator[str]:
    """The root (``""``) first."""
    yield ""
    end = cgroup.find("/")
    while end >= 0:
        yield cgroup[:end]
        end = cgroup.find("/", end + 1)
