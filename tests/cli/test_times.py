"""Times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.cli.main import build_parser
from koordlet.cli.times import parse_range, parse_span, parse_time
from tests.cli.conftest import InZone

# Saturday, 31 January 2026, 15:30:00 UTC.
NOW = 1769873400.0


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("now", NOW),
        ("10m", NOW - 600),
        ("-10m", NOW - 600),
        ("1h30m", NOW - 5400),
        ("250ms", NOW - 0.25),
        ("0", NOW),
        ("@1769857200", 1769857200.0),
        ("@1769857200.5", 1769857200.5),
        ("15:30", NOW),
        ("14:02", NOW - 88 * 60),
        ("9:02", NOW - 388 * 60),
        ("14:02:11", NOW - 88 * 60 + 11),
        ("15:31", NOW - 86340),  # it was not yet today
        ("23:59:59", NOW - 55801),
        ("2026-01-31", NOW - 55800),
        ("2026-01-31T12:00:00", NOW - 12600),
        ("2026-01-31 12:00", NOW - 12600),
        ("2026-01-31T12:00:00Z", NOW - 12600),
        ("2026-01-31T12:00:00+02:00", NOW - 19800),
        ("2030-01-01", 1893456000.0),
    ],
)
def test_every_form(text: str, wanted: float, in_zone: InZone) -> None:
    in_zone("UTC")
    assert parse_time(text, NOW) == wanted


def test_local_unless_it_says_otherwise(in_zone: InZone) -> None:
    in_zone("CET-1")  # an hour before UTC
    assert parse_time("2026-01-31T16:30:00", NOW) == NOW
    assert parse_time("2026-01-31T15:30:00Z", NOW) == NOW
    assert parse_time("16:30", NOW) == NOW
    assert parse_time("15:30Z", NOW) == NOW
    assert parse_time("16:31", NOW) == NOW - 86340


def test_a_day_may_have_23_hours(in_zone: InZone) -> None:
    in_zone("CET-1CEST,M3.5.0,M10.5.0/3")
    morning = datetime(2026, 3, 29, 10, tzinfo=UTC).timestamp()  # noon, the clock went forward at 2
    assert morning - parse_time("00:30", morning) == 10.5 * 3600


@pytest.mark.parametrize(
    "text",
    [
        "", "yesterday", "10", "-", "--10m", "+10m", "24:00", "1:0", "14:60", "14:02:11:9", "@",
        "@nan", "@inf", "@1e300", "2026-02-30", "2026-01-31T25:00", "12:00 ", "1４:02",
        "x" * 100_000, "9" * 5000 + "h", "@" + "9" * 60,
    ],
)  # fmt: skip
def test_what_is_no_time(text: str, in_zone: InZone) -> None:
    in_zone("LATE+12")
    with pytest.raises(ValueError, match="is no time; 10m") as error:
        parse_time(text, NOW)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        ("10m", None, (-600, 0)),
        ("-20m", "-5m", (-1200, -300)),
        ("14:00", "14:20", (-5400, -4200)),
        ("15:00", "16:00", (-1800, 0)),  # an end to come is now
        ("23:50", "00:10", (-56400, -55200)),  # over midnight
        ("10m", "now", (-600, 0)),
        ("14:02Z", None, (-5280, 0)),
        ("@1769870000", "@1769871000.5", (-3400, -2399.5)),
        ("-1h30m", "-30m", (-5400, -1800)),
        ("14:00", "+20m", (-5400, -4200)),
        ("2026-01-31T12:00", "12:30", (-12600, -10800)),
        ("2026-01-30T12:00", "12:00", (-99000, -12600)),  # the next noon
        ("2026-01-31T12:00", "2026-01-31T12:30", (-12600, -10800)),
    ],
)
def test_stretches(
    start: str, end: str | None, wanted: tuple[float, float], in_zone: InZone
) -> None:
    in_zone("UTC")
    found = (NOW + wanted[0], NOW + wanted[1])
    assert parse_range(start, end, NOW) == found
    assert parse_span(f"{start}..{end or ''}", NOW) == found


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        ("now", None, "not in the past"),
        ("2030-01-01", None, "not in the past"),
        ("5m", "10m", "not after the beginning"),
        ("5m", "+0", "not after the beginning"),
        ("5m", "+x", "no length of time such as"),
        ("nonsense", None, "is no time"),
        ("5m", "nonsense", "is no time"),
    ],
)
def test_what_is_no_stretch(start: str, end: str | None, text: str, in_zone: InZone) -> None:
    in_zone("UTC")
    with pytest.raises(ValueError, match=text):
        parse_range(start, end, NOW)


@pytest.mark.parametrize("text", ["", "..", "..5m", "5m", "5m.4m"])
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not FROM\.\.TO"):
        parse_span(text, NOW)


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_text_is_a_time_or_an_error(start: str, end: str) -> None:
    try:
        found = parse_range(start, end, NOW)
    except ValueError:
        return
    assert found.start < found.end <= NOW


def test_a_time_ago_is_no_option() -> None:
    """argparse takes ``-10m`` for one unless told otherwise."""
    args = build_parser().parse_args(["events", "--since", "-10m"])
    assert args.since == "-10m"
