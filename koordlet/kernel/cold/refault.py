"""Refaults: pages that were reclaimed and wanted again before they had been forgotten
(``workingset_refault`` of ``memory.stat``, Linux ``Documentation/admin-guide/cgroup-v2.rst``).

They alone tell memory that is hot by ``read(2)`` from cold memory, once the kernel has taken it.
"""

from __future__ import annotations

from koordlet.kernel.parse import flat_keyed, has_line

_NAMES = (
    (b"total_workingset_refault_anon", b"total_workingset_refault_file"),  # v1, with descendants
    (b"workingset_refault_anon", b"workingset_refault_file"),
    (b"workingset_refault",),  # before Linux 5.9
)


def refault_pages(data: bytes, path: str = "") -> int | None:
    """Pages since the cgroup was made, of it and those below it. None where the kernel does not
    count them: on v1 before Linux 5.10. Raises ParseError."""
    for names in _NAMES:
        if has_line(data, names[0] + b" "):
            return sum(flat_keyed(data, names, path))
    return None
