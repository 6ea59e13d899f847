"""What holds for all tests."""

from __future__ import annotations

import pytest
from hypothesis import settings

# No test asserts on time, since the machine has other work. The profile that Hypothesis takes where
# CI is set has no deadline either, and is left as it is: it draws the same examples each time.
settings.register_profile("koordlet", deadline=None)
if settings.get_current_profile_name() == "default":
    settings.load_profile("koordlet")

_ON_THE_REAL_MACHINE = ("kernel", "systemd", "runtime")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Other processes share the real machine, or the one that emulates a guest: what fails there
    is run once more, and listed. Tests on the fake kernel never get a second try.
    """
    for item in items:
        if any(item.get_closest_marker(name) for name in _ON_THE_REAL_MACHINE):
            item.add_marker(pytest.mark.flaky(reruns=1))
