"""What all ways of finding cold memory have in common."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple, Protocol

NODE = ""
"""The whole node, by the path of the root cgroup."""


class Cold(NamedTuple):
    """Bytes that nobody has used for a while. None: this way cannot tell.

    ``file_bytes``: page cache without tmpfs. ``anon_bytes``: anonymous memory and tmpfs, which only
    swap can take. ``mapped_bytes``: both together, as far as processes map it.
    """

    anon_bytes: int | None = None
    file_bytes: int | None = None
    mapped_bytes: int | None = None


Scan = Generator[None, None, dict[str, Cold]]
"""One measurement in steps of well under a millisecond, so that whoever drives it can rest between
two. Returns cgroup -> what is cold in it and below it; a cgroup of which nothing is known is left
out."""


class Method(Protocol):
    """One way. It may need several scans, one each interval, before it knows anything."""

    @property
    def name(self) -> str: ...

    def check(self) -> str:
        """What was tried, in words. Raises NotAvailable, or OSError as the kernel gave it."""
        ...

    def scan(self, cgroups: frozenset[str]) -> Scan:
        """Raises OSError or ParseError where the interface itself fails; a cgroup or a process
        that goes meanwhile is left out."""
        ...


class NotAvailable(Exception):  # noqa: N818 - an outcome, not a mistake
    """This kernel, as it is now, does not have it; ``remedy``: empty when nothing is known."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(f"{why}; {remedy}" if remedy else why)
        self.why = why
        self.remedy = remedy


def upwards(cgroup: str) -> Iterator[str]:
    """The cgroup, those above it, and the root."""
    while cgroup:
        yield cgroup
        cgroup = cgroup.rpartition("/")[0]
    yield NODE
