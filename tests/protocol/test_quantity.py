from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.protocol.cpuset import format_cpulist, parse_cpulist
from koordlet.protocol.duration import format_duration, parse_duration
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.limits import CPU_ID
from koordlet.protocol.quantity import NANO, Format, Quantity, parse_quantity
from koordlet.protocol.resources import TIER_NAMES, tier_amount, tier_name

MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "nano", "canonical"),
    [
        ("0", 0, "0"),
        ("-0", 0, "0"),
        ("500m", 500 * 10**6, "500m"),
        ("2", 2 * NANO, "2"),
        ("1.5", 3 * NANO // 2, "1500m"),
        (".5", NANO // 2, "500m"),
        ("5.", 5 * NANO, "5"),
        ("+1", NANO, "1"),
        ("-2k", -2000 * NANO, "-2k"),
        ("1000", 1000 * NANO, "1k"),
        ("1k", 1000 * NANO, "1k"),
        ("1500", 1500 * NANO, "1500"),
        ("1Ki", 1024 * NANO, "1Ki"),
        ("1.5Gi", 1536 * 2**20 * NANO, "1536Mi"),
        ("1024Mi", 2**30 * NANO, "1Gi"),
        ("0.5Ki", 512 * NANO, "512"),
        ("0.1Ki", 102_400_000_000, "102400m"),
        ("1000000Ki", 1000000 * 1024 * NANO, "1000000Ki"),
        ("1e3", 1000 * NANO, "1e3"),
        ("1E3", 1000 * NANO, "1e3"),
        ("1e-3", NANO // 1000, "1e-3"),
        ("12e+1", 120 * NANO, "120"),
        ("1E", 10**18 * NANO, "1E"),
        ("1Ei", 2**60 * NANO, "1Ei"),
        ("1n", 1, "1n"),
        ("1u", 1000, "1u"),
        ("0.1n", 1, "1n"),
        ("-0.1n", -1, "-1n"),
        ("0.0000000001", 1, "1n"),
        ("100E", MAX * NANO, str(MAX)),
        ("-100E", -MAX * NANO, str(-MAX)),
        ("1e999999999999", MAX * NANO, f"{MAX}e0"),
        ("1e-999999999999", 1, "1e-9"),
        ("0e999999999999", 0, "0"),
    ],
)
def test_parse(text: str, nano: int, canonical: str) -> None:
    quantity = parse_quantity(text)
    assert quantity.nano == nano
    assert str(quantity) == canonical.removesuffix("e0")


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "1 ", " 1", ".", "+", "-", "--1", "+-1", "1..2", "1.2.3", "1_0", "0x10"),
        *("1Kii", "ki", "1ki", "1K", "1m5", "1e", "1e+", "1e--1", "1e+-3", "1e1.5", "1e²"),
        *("NaN", "inf", "١", "9" * 129),
    ],
)
def test_refuse(text: str) -> None:
    with pytest.raises(ProtocolError):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        ("100m", 1, 100),
        ("1.0001", 2, 1001),
        ("-100m", -1, -100),
        ("1k", 1000, 10**6),
        (0.5, 1, 500),
    ],
)
def test_integers_round_away_from_zero(text: str | float, value: int, milli: int) -> None:
    quantity = parse_quantity(text)
    assert (quantity.value, quantity.milli) == (value, milli)


def test_equality_ignores_the_format() -> None:
    assert parse_quantity("1Ki") == parse_quantity("1024")
    assert parse_quantity("1e3") == parse_quantity("1k")
    assert parse_quantity("1") < parse_quantity("1001m")


@given(st.integers(-MAX * NANO, MAX * NANO), st.sampled_from(list(Format)))
def test_quantity_round_trip(nano: int, form: Format) -> None:
    """Binary without a power of 1024 in it is written in bare digits, which Kubernetes reads as
    decimal and writes shorter; after that the text stays."""
    quantity = Quantity(nano, form)
    assert (read := parse_quantity(str(quantity))) == quantity
    assert (again := parse_quantity(str(read))) == quantity
    assert str(again) == str(read)


@given(st.text(max_size=140) | st.text("0123456789.eEkKMGi+-mnu", max_size=12))
def test_any_text_is_a_quantity_or_a_protocol_error(text: str) -> None:
    try:
        quantity = parse_quantity(text)
    except ProtocolError:
        return
    assert abs(quantity.nano) <= MAX * NANO


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("5m0s", 300.0),
        ("1h30m", 5400.0),
        ("300ms", 0.3),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("1us", 1e-6),
        ("1µs", 1e-6),
        ("2ns", 2e-9),
    ],
)
def test_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "5", "m", "-5m", "5 m", "5M", "1d", ".s", "5mm", "1h ", "9" * 60 + "h", "300000h1" * 9],
)
def test_refused_duration(text: str) -> None:
    with pytest.raises(ProtocolError):
        parse_duration(text)


@given(st.integers(0, 10**7))
def test_duration_round_trip(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.text(max_size=70) | st.text("0123456789.hmsuµn", max_size=12))
def test_any_text_is_a_duration_or_a_protocol_error(text: str) -> None:
    try:
        assert parse_duration(text) >= 0
    except ProtocolError as error:
        assert error.message


@given(st.frozensets(st.integers(0, CPU_ID), max_size=60))
def test_cpulist_round_trip(cpus: frozenset[int]) -> None:
    assert parse_cpulist(format_cpulist(cpus)) == cpus


@given(st.text(max_size=40) | st.text("0123456789,- ", max_size=20))
def test_any_text_is_a_cpulist_or_a_value_error(text: str) -> None:
    try:
        cpus = parse_cpulist(text)
    except ValueError:
        return
    assert parse_cpulist(format_cpulist(cpus)) == cpus


@pytest.mark.parametrize(
    ("text", "cpus"), [("", set()), ("0-2,5\n", {0, 1, 2, 5}), ("3", {3}), ("1,1-2", {1, 2})]
)
def test_cpulist(text: str, cpus: set[int]) -> None:
    assert parse_cpulist(text) == cpus


@pytest.mark.parametrize("text", ["3-1", "a", "1-", "-1", "1,,2", "0-99999999999", "4097", "٣"])
def test_refused_cpulist(text: str) -> None:
    with pytest.raises(ValueError, match="CPU list"):
        parse_cpulist(text)


def test_tier_names_and_amounts() -> None:
    names = {str(cls): (tier_name("cpu", cls), tier_name("memory", cls)) for cls in TIER_NAMES}
    assert names == {
        "koord-prod": ("cpu", "memory"),
        "koord-mid": ("kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"),
        "koord-batch": ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"),
        "koord-free": (None, None),
    }
    assert tier_name("cpu", None) == "cpu"
    assert tier_amount("cpu", parse_quantity("0.5")) == 500
    assert tier_amount("cpu", parse_quantity("0.1m")) == 1
    assert tier_amount("memory", parse_quantity("2Gi")) == 2 << 30
