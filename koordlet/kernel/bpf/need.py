"""What the machine lacks, and its owner can see to."""

from __future__ import annotations

NEW_KERNEL = "use a kernel with CONFIG_DEBUG_INFO_BTF, 5.12 or later"


class NeedError(OSError):
    """``remedy``: what to do about it."""

    def __init__(self, number: int, why: str, what: str, remedy: str) -> None:
        super().__init__(number, why, what)
        self.remedy = remedy
