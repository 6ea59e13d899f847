"""What holds for all tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# No test asserts on time, since the machine has other work. The profile that Hypothesis takes where
# CI is set has no deadline either, and is left as it is: it draws the same examples each time.
settings.register_profile("koordlet", deadline=None)
if settings.get_current_profile_name() == "default":
    settings.load_profile("koordlet")

_GROUPS = {
    "kernel": "machine",
    "systemd": "containers",
    "runtime": "containers",
    "cluster": "cluster",
}
"""Mark of a test on the real machine -> what it may not run beside. Cgroups of containers, and what
their runtimes and systemd keep below /run, are their own."""


def pytest_configure() -> None:
    """Make nothing depend on who starts the tests: a shell starts background jobs with signals
    ignored, which the programs under test would inherit; a terminal has a width."""
    for each in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(each, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("COLUMNS", None)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where `-m kernel` or `-m cluster` alone is asked for, files without such a test are not even
    imported: a guest takes a minute to import them all (``tests/vm/stages.toml``). Fixtures of the
    folder's conftest may carry the mark."""
    mark = config.option.markexpr
    if mark not in {"kernel", "cluster"} or not collection_path.match("test_*.py"):
        return None
    files = (collection_path, collection_path.with_name("conftest.py"))
    marked = any(f"mark.{mark}".encode() in f.read_bytes() for f in files if f.exists())
    return None if marked else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests on the real machine share it with other processes, so a failed one is run once more
    and listed. Tests on the fake kernel never get a second try.

    Beside other pytest workers (``tools/test``) those of a group stay in one worker: each sees the
    machine as it would see it alone, and the others use the time that it waits.
    ``KOORDLET_ALONE``: "only" the tests marked ``alone``, or all "without" them.
    """
    for item in items:
        groups = (group for mark, group in _GROUPS.items() if item.get_closest_marker(mark))
        if group := next(groups, ""):
            item.add_marker(pytest.mark.flaky(reruns=1))
            item.add_marker(pytest.mark.xdist_group(group))
    wanted = os.environ.get("KOORDLET_ALONE")
    if wanted in {"only", "without"}:
        left = [i for i in items if bool(i.get_closest_marker("alone")) != (wanted == "only")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]


def pytest_collection_finish(session: pytest.Session) -> None:
    """A pytest-xdist that overlooks the groups says nothing, and the tests disturb each other."""
    if not getattr(session.config.option, "loadgroup", False):
        return
    for item in session.items:
        group = item.get_closest_marker("xdist_group")
        if group is not None and not item.nodeid.endswith(f"@{group.args[0]}"):
            raise pytest.UsageError(
                f"{item.nodeid} is not in its xdist group: this pytest and this pytest-xdist "
                "do not fit together (pytest-xdist issue 1386)"
            )
