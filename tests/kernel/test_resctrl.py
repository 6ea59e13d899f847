"""Schemata as text, facts for the node, and the fake file system as the kernel's documentation
has it (Documentation/arch/x86/resctrl.rst): no machine of ours has the real one."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordlet_fakefs import FakeHost, Resctrl, shape

from koordlet.decision.resource import ABSENT, Resource
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.parse import ParseError
from koordlet.kernel.proc.files import cpu_vendor
from koordlet.kernel.resctrl import (
    MADE,
    ResctrlGroups,
    format_schemata,
    parse,
)
from koordlet.kernel.resctrl_info import Divisible, read_resctrl

ROOT = "/sys/fs/resctrl"
SCHEMATA = Resource.RESCTRL_SCHEMATA
SHAPE = shape(sockets=2)


@pytest.fixture
def host() -> FakeHost:
    return FakeHost(resctrl=True, topology=SHAPE)


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["L3", "L3CODE", "L3DATA", "MB"]), st.integers(0, 64)),
        st.integers(1, 2**20),
    )
)
def test_what_is_formatted_parses_to_the_same(allocation: dict[tuple[str, int], int]) -> None:
    assert parse(format_schemata(allocation).encode(), "x") == allocation


def test_lines_in_any_order_with_zeros_and_others_between() -> None:
    text = b"    MB:0= 20;1=100\n  L2:0=ff\n    L3:1=00f;0=7ff;\n"
    assert parse(text, "x") == {("MB", 0): 20, ("MB", 1): 100, ("L3", 0): 0x7FF, ("L3", 1): 0xF}
    assert format_schemata(parse(text, "x")) == "L3:0=7ff;1=f\nMB:0=20;1=100\n"


@pytest.mark.parametrize("text", [b"L3:0\n", b"L3:x=1\n", b"MB:0=f\n"])
def test_damage_names_file_and_line(text: bytes) -> None:
    with pytest.raises(ParseError, match="schemata:1"):
        parse(text, "/x/schemata")


@pytest.mark.parametrize("value", ["L2:0=f\n", "L3:0=g\n", "L3\n", 5])
def test_what_is_no_schemata_cannot_be_wanted(host: FakeHost, value: str) -> None:
    with pytest.raises(ValueError, match=r"resctrl\.schemata"):
        ResctrlGroups(host, "/sys").encode(SCHEMATA, value)


def test_facts_for_the_node(host: FakeHost) -> None:
    masks = {0: 0x7FF, 1: 0x7FF}
    assert read_resctrl(host) == Divisible(
        masks, ("L3",), 1, (0, 1), 10, 10, 32, 1, vendor="GenuineIntel"
    )
    assert read_resctrl(FakeHost()) == Divisible()
    assert cpu_vendor(host) == "GenuineIntel"


def test_facts_of_other_processors_and_mounts() -> None:
    apart = FakeHost(resctrl=Resctrl(cdp=True, min_ways=2, least=5, step=5, cache_ids=(0, 8)))
    masks = {0: 0x7FF, 8: 0x7FF}
    lines = ("L3CODE", "L3DATA")
    assert read_resctrl(apart) == Divisible(
        masks, lines, 2, (0, 8), 5, 5, 32, 1, vendor="GenuineIntel"
    )
    amd = FakeHost(resctrl=Resctrl(least=0, step=1, most=2048), cpu_vendor="AuthenticAMD")
    assert read_resctrl(amd) == Divisible(
        {0: 0x7FF}, ("L3",), 1, (0,), 0, 1, 32, 1, vendor="AuthenticAMD"
    )
    assert cpu_vendor(amd) == "AuthenticAMD"
    by_rate = FakeHost(resctrl=Resctrl(most=(1 << 32) - 1))
    assert read_resctrl(by_rate).mb_caches == ()


def test_code_and_data_apart_are_written_and_read_as_two_lines() -> None:
    groups = ResctrlGroups(FakeHost(resctrl=Resctrl(cdp=True)), "/sys")
    text = "L3CODE:0=f\nL3DATA:0=3\nMB:0=30\n"
    groups.write("koordlet-a", SCHEMATA, text)
    assert groups.read("koordlet-a", SCHEMATA) == text
    with pytest.raises(OSError, match="Unknown or unsupported resource name 'L3'"):
        groups.write("koordlet-b", SCHEMATA, "L3:0=f\n")


def test_equality_counts_what_is_listed_and_the_default_for_the_rest(host: FakeHost) -> None:
    groups = ResctrlGroups(host, "/sys")
    assert groups.equal(SCHEMATA, "L3:1=0f\n", "L3:0=7ff;1=f\nMB:0=100;1=100\n")
    assert not groups.equal(SCHEMATA, "L3:1=0f\n", "L3:0=7ff;1=f\nMB:0=20;1=100\n")
    assert not groups.equal(SCHEMATA, "L3:1=0f\n", "L3:0=7ff;1=7ff\n")
    assert groups.equal(SCHEMATA, MADE, "L3:0=1\n")
    assert not groups.equal(SCHEMATA, MADE, ABSENT) and groups.equal(SCHEMATA, ABSENT, ABSENT)


def test_not_mounted() -> None:
    with pytest.raises(Unsupported) as caught:
        ResctrlGroups(FakeHost(), "/sys").read("koordlet-a", SCHEMATA)
    assert caught.value.remedy == f"where the processor has it: mount -t resctrl resctrl {ROOT}"


def test_a_write_leaves_other_domains_alone(host: FakeHost) -> None:
    groups = ResctrlGroups(host, "/sys")
    groups.write("koordlet-a", SCHEMATA, "L3:0=1;1=2\nMB:1=30\n")
    groups.write("koordlet-a", SCHEMATA, "L3:0=3;1=2\nMB:1=30\n")
    assert groups.read("koordlet-a", SCHEMATA) == "L3:0=3;1=2\nMB:0=100;1=30\n"
    raw = groups.read_raw("koordlet-a", SCHEMATA)
    groups.write("koordlet-a", SCHEMATA, ABSENT)
    groups.write_raw("koordlet-a", SCHEMATA, raw)
    assert groups.holds("koordlet-a", SCHEMATA, raw)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"L3:0=f", ""),  # no newline at the end
        (b"L3:0=0\n", "Mask out of range"),
        (b"L3:0=1000\n", "Mask out of range"),
        (b"L3:0=5\n", "The mask 5 has non-consecutive 1-bits"),
        (b"L3:0=x\n", "Non-hex character in the mask x"),
        (b"L3:0=1;0=1\n", "Duplicate domain 0"),
        (b"L3:7=1\n", ""),
        (b"L3:0\n", "Missing '=' or non-numeric domain"),
        (b"L3\n", "Missing ':'"),
        (b"L3:\n", "Missing 'L3' value"),
        (b"L2:0=1\n", "Unknown or unsupported resource name 'L2'"),
        (b"MB:0=9\n", "MB value 9 out of range [10,100]"),
    ],
)
def test_the_fake_refuses_as_the_kernel_does(host: FakeHost, data: bytes, status: str) -> None:
    with pytest.raises(OSError) as caught:
        host.write(f"{ROOT}/schemata", data)
    assert caught.value.errno == errno.EINVAL
    assert host.read(f"{ROOT}/info/last_cmd_status").decode().strip() in (status, status or "ok")
    host.write(f"{ROOT}/schemata", b"L3:0=3;\n")
    assert host.read(f"{ROOT}/info/last_cmd_status") == b"ok\n"


def test_groups_of_the_fake(host: FakeHost) -> None:
    host.mkdir(f"{ROOT}/a")
    for path, code in ((f"{ROOT}/a", errno.EEXIST), (f"{ROOT}/a/b", errno.EPERM)):
        with pytest.raises(OSError) as caught:
            host.mkdir(path)
        assert caught.value.errno == code
    with pytest.raises(OSError) as caught:
        host.write(f"{ROOT}/a/tasks", b"99999")
    assert caught.value.errno == errno.ESRCH
    assert host.read(f"{ROOT}/info/last_cmd_status") == b"No task 99999\n"
    with pytest.raises(PermissionError):
        host.rmdir(f"{ROOT}/info")
