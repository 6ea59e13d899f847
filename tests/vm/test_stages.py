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
            file, name = re.fullmatch(r"([^:]+)::(\w+)(?:\[.+\])?", test).groups()  # type: ignore[union-attr]
            assert f"\ndef {name}(" in (REPOSITORY / file).read_text(), test


def test_ci_has_what_is_left_out_elsewhere() -> None:
    """In another guest of the stage, or on the machine itself: `make test` runs all files."""
    for stage in read_stages():
        for guest, tests in stage.long.items():
            short, other = stage.short(guest), stage.short("another")
            assert short.pytest[: len(other.pytest)] == other.pytest == stage.pytest
            assert [each for each in short.pytest if each in tests] == list(tests)


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
