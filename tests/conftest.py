"""What holds for all tests."""

from __future__ import annotations

import pytest

_ON_THE_REAL_MACHINE = ("kernel", "systemd", "runtime")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Other processes share the real machine: what fails on it is run once more, and listed.

    Tests on the fake kernel never get a second try.
    """
    for item in items:
        if any(item.get_closest_marker(name) for name in _ON_THE_REAL_MACHINE):
            item.add_marker(pytest.mark.flaky(reruns=1))
