from __future__ import annotations

import pytest

from koordlet.cli.span import parse_span

NOW = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("-1h..now", NOW - 3600, NOW),
        ("-1h30m..-30m", NOW - 5400, NOW - 1800),
        ("22:00..22:10", NOW - 800, NOW - 200),
        ("22:00:30..+5m", NOW - 770, NOW - 470),
        ("23:00..23:30", NOW + 2800 - 86400, NOW + 4600 - 86400),  # of yesterday
        ("2023-11-14T22:00:00..now", NOW - 800, NOW),
        ("2023-11-14T23:00:00+01:00..2023-11-14 22:10", NOW - 800, NOW - 200),
        ("1699999000..1699999100.5", 1699999000.0, 1699999100.5),
        ("-10m..+1m", NOW - 600, NOW - 540),
    ],
)
def test_spans(text: str, first: float, last: float) -> None:
    assert parse_span(text, NOW) == (first, last)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("now", "is not FROM..TO, such as -1h..now"),
        ("..now", "is not FROM..TO"),
        ("-1h..", "is not FROM..TO"),
        ("now..-1h", "ends before it begins"),
        ("yesterday..now", "'yesterday' is no time: write now, -1h30m"),
        ("-1x..now", "'-1x' is no time"),
        ("25:00..now", "'25:00' is no time"),
        ("-1h..+x", "'\\+x' is no time"),
        ("+1h..now", "'\\+1h' is no time"),
        ("²..now", "is no time"),
    ],
)
def test_what_to_do_instead(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_span(text, NOW)
