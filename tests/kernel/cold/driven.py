"""Scans driven to their end without a rest, and what a kernel must have for them."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

from koordlet.kernel.cold.cold import Cold, Method

_THERE_FOR = {"cold": "mglru", "core": "page-idle"}
"""Guest -> the method that stage ``cold-memory`` is there to measure."""


def lacks(name: str, why: object) -> NoReturn:
    """Skips, except where the method must be there."""
    text = f"{name}: {why}"
    if _THERE_FOR.get(os.environ.get("KOORDLET_GUEST", "")) == name:
        pytest.fail(f"this guest exists to measure it and lacks it: {text}")
    pytest.skip(text)


def scanned(method: Method, *cgroups: str) -> dict[str, Cold]:
    scan = method.scan(frozenset(cgroups))
    while True:
        try:
            next(scan)
        except StopIteration as end:
            found: dict[str, Cold] = end.value
            return found
