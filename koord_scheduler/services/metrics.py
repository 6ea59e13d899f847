"""Figures for Prometheus, under the names that dashboards of the reference have.

The client library would add ``_total`` to the names of its counters (spec/central.md 1.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

Labels = tuple[str, ...]
Values = Iterable[tuple[Labels, float]]


class Family(NamedTuple):
    """``read`` is called for each page. ``internal``: not on the page for others."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...]
    read: Callable[[], Values]
    internal: bool = True


class Metrics:
    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def add(self, family: Family) -> None:
        """One that has this name already is replaced: a controller began anew."""
        self._families[family.name] = family

    def counter(self, name: str, about: str, *labels: str) -> Counter[Labels]:
        """One that its owner counts up: ``made[("ok", "")] += 1``."""
        made: Counter[Labels] = Counter()
        self.add(Family(name, "counter", about, labels, lambda: tuple(made.items())))
        return made

    def page(self, *, internal: bool | None = None) -> str:
        """In the text format 0.0.4. ``internal`` None: all families."""
        lines: list[str] = []
        for name in sorted(self._families):
            family = self._families[name]
            if internal is not None and family.internal is not internal:
                continue
            lines.append(f"# HELP {name} {_escaped(family.help)}")
            lines.append(f"# TYPE {name} {family.kind}")
            lines += (
                f"{name}{_labels(family.labels, labels)} {_number(value)}"
                for labels, value in family.read()
            )
        return "\n".join(lines) + "\n" if lines else ""


def _labels(names: tuple[str, ...], values: Labels) -> str:
    if not names:
        return ""
    pairs = (
        f'{name}="{_escaped(value, quote=True)}"' for name, value in zip(names, values, strict=True)
    )
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str, quote: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quote else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
