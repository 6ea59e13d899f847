"""What is wrong with what a mirror gets: objects that cannot be read, a watch that gets nowhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from koordlet.protocol.limits import JSON_DEPTH

TOO_DEEP = f"nested deeper than {JSON_DEPTH} levels; what is deeper is not looked at"
STEADY_S = 10.0
"""A watch that lasted this long was a good one."""
STALLED_S = 60.0
MOST_NAMES = 200
"""Objects that are named at a time, and in the log in all: anybody can make as many as he likes."""


class Trouble:
    """``tell`` hears once of each object; ``clock`` in seconds. ``count``: since the start."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        self.objects: dict[str, str] = {}
        """Name -> what is wrong with it now; empty the name where it is nobody's."""
        self.count = 0
        self._tell, self._clock = tell, clock
        self._told: set[str] = set()
        self._before: Mapping[str, str] = {}
        self._failing_since_s: float | None = None
        self._begun_s: float | None = None

    def add(self, name: str, why: str) -> None:
        if self.objects.get(name) == why:
            return
        self.count += self._before.get(name) != why
        if name in self.objects or len(self.objects) < MOST_NAMES:
            self.objects[name] = why
        if name not in self._told and len(self._told) < MOST_NAMES:
            self._told.add(name)
            self._tell(f"{name}: {why}" if name else why)

    def over(self, name: str) -> None:
        """Forget what was wrong with this one."""
        self.objects.pop(name, None)

    def lists(self) -> None:
        """Forget it of all, because all are read anew."""
        self._before, self.objects = self.objects, {}

    def begun(self) -> None:
        """Begin to count how long a watch lasts."""
        if self._begun_s is None:
            self._begun_s = self._clock()

    def progress(self) -> None:
        self._failing_since_s = None

    def ended(self) -> bool:
        """Return whether the watch that ended was a good one."""
        now_s, begun_s = self._clock(), self._begun_s
        self._begun_s = None
        good = begun_s is not None and now_s - begun_s >= STEADY_S
        if good:
            self._failing_since_s = None
        elif self._failing_since_s is None:
            self._failing_since_s = now_s
        return good

    def stalled_s(self) -> float:
        """Return for how long it got nowhere; 0 while it gets on, and until that is long."""
        now_s = self._clock()
        if self._failing_since_s is None or (
            self._begun_s is not None and now_s - self._begun_s >= STEADY_S
        ):
            return 0.0
        stalled_s = now_s - self._failing_since_s
        return stalled_s if stalled_s >= STALLED_S else 0.0
