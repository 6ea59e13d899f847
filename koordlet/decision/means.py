"""The means by which best-effort work is held back, where the settings leave a choice."""

from __future__ import annotations

import msgspec


class Means(msgspec.Struct, frozen=True):
    """``weight``: best-effort applications get the smallest weight, else ``cpu.idle``. ``spread``:
    their threads are kept each on one CPU. ``quota``: suppression limits them by a quota, else by a
    CPU list."""

    weight: bool = False
    spread: bool = True
    quota: bool = False

    @property
    def title(self) -> str:
        """How people read it."""
        yields = "smallest weight" if self.weight else "cpu.idle"
        kept = "threads kept on CPUs" if self.spread else "threads free"
        return f"{yields}, {kept}, {'quota' if self.quota else 'CPU list'}"


DEFAULT_MEANS = Means()
"""Until it was measured on this node: the least harmful in ``docs/concepts/cpu-means.md``."""
