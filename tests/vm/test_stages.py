"""The table of stages names what is there, and both of its forms are what they say."""

from __future__ import annotations

import re

import msgspec
import pytest

from tests.vm.disks import REPOSITORY
from tests.vm.guests import GUESTS
from tests.vm.stages import Stage, read_stages


def test_guests_and_files_of_the_table_are_there() -> None:
    guests = {guest.name for guest in GUESTS}
    for stage in read_stages():
        assert set(stage.guests) <= guests
        for word in stage.pytest:
            if (path := word.removeprefix("--ignore=").partition("::")[0]).startswith("tests/"):
                assert (REPOSITORY / path).exists(), (stage.name, word)


def test_what_is_left_out_is_there() -> None:
    """pytest says nothing about a ``--deselect`` that matches no test."""
    for stage in read_stages():
        for test in (test for tests in stage.long.values() for test in tests):
            found = re.fullmatch(r"([^:]+)(?:::(\w+)(?:\[.+\])?)?", test)
            assert found is not None and (REPOSITORY / found[1]).is_file(), test
            assert f"\ndef {found[2] or 'test_'}" in (REPOSITORY / found[1]).read_text(), test


def test_the_short_form_is_the_long_one_without_them() -> None:
    for stage in read_stages():
        assert stage.short("a guest that has all").pytest == stage.pytest
        for guest, tests in stage.long.items():
            more = stage.short(guest).pytest[len(stage.pytest) :]
            assert more[::2] == ("--deselect",) * len(tests)
            assert more[1::2] == tests


def test_a_form_for_a_guest_that_the_stage_has_not() -> None:
    with pytest.raises(msgspec.ValidationError, match="no guest of it: core"):
        msgspec.convert(
            {"name": "s", "guests": ["v2"], "limit_s": 1, "pytest": ["x"], "long": {"core": ["y"]}},
            Stage,
        )


def test_no_file_with_a_marked_test_is_passed_over(request: pytest.FixtureRequest) -> None:
    """With `-m kernel` a file that does not name the mark is not imported (tests/conftest.py)."""
    marked = {i.path for i in request.session.items if i.get_closest_marker("kernel")}
    assert [path for path in marked if b"mark.kernel" not in path.read_bytes()] == []


def test_between_two_cpus_that_take_turns_stands_one_that_is_never_started() -> None:
    for guest in (guest for guest in GUESTS if guest.name.startswith("kernel-")):
        found = re.search(r"nr_cpus=(\d+)", guest.append)
        assert found is not None
        cpus = int(found[1])
        cores = [0, *map(int, re.findall(r"core-id=(\d+)", " ".join(guest.cpus_and_memory)))]
        assert cores[::2] == list(range(cpus))
        assert sorted(cores[1::2]) == list(range(cpus, 2 * cpus - 1))
