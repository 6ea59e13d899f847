"""Checks of ``koordlet doctor``, as data."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class CheckState(StrEnum):
    OK = "ok"
    LIMITED = "limited"
    FAIL = "fail"


class CheckView(msgspec.Struct, frozen=True, kw_only=True):
    """``why``: what was tried and seen; ``cost``: what does not work because of it; ``remedy``:
    what to do. The last two are empty when ok."""

    name: str
    state: CheckState
    why: str
    cost: str = ""
    remedy: str = ""


class DoctorView(msgspec.Struct, frozen=True, kw_only=True):
    checks: tuple[CheckView, ...] = ()
