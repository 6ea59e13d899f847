from __future__ import annotations

import copy
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.reads import Reads
from koordlet.decision.resource import Resource
from koordlet.inputs.answers import Listener, Teller
from koordlet.inputs.model import Answers
from koordlet.inputs.packing import packed, unpacked

CGROUPS = st.sampled_from(["", "kubepods", "kubepods/besteffort", "caf\udce9"])
RESOURCES = st.sampled_from([Resource.CPU_QUOTA_US, Resource.CPUSET_CPUS])
VALUES = st.none() | st.integers(-1, 2**40) | st.sampled_from(["0-3", ""])
KEYS = st.tuples(CGROUPS, RESOURCES)
READS = st.builds(
    Reads,
    values=st.dictionaries(KEYS, VALUES),
    reached=st.dictionaries(st.tuples(CGROUPS, RESOURCES, st.integers(0, 2**40)), st.booleans()),
    originals=st.dictionaries(KEYS, VALUES),
    withouts=st.dictionaries(
        st.tuples(st.sampled_from(["cpu-burst", "rival"]), CGROUPS, RESOURCES), VALUES
    ),
    ours=st.dictionaries(KEYS, st.booleans()),
    children=st.dictionaries(
        st.tuples(CGROUPS, st.none() | RESOURCES), st.lists(CGROUPS).map(tuple)
    ),
)


def merged(before: Reads, reads: Reads) -> Reads:
    names = list(vars(reads))
    return Reads(**{name: getattr(before, name) | getattr(reads, name) for name in names})


@given(st.lists(READS, max_size=6))
def test_a_listener_knows_the_last_answer_to_each_question(turns: list[Reads]) -> None:
    teller, listener, expected = Teller(), Listener(), Reads()
    for reads in turns:
        told = teller.tell(copy.deepcopy(reads))
        expected = merged(expected, reads)
        if told is not None:
            listener.hear(unpacked(packed(told), Answers))
        assert listener.reads == expected


def test_what_is_known_is_not_told_again() -> None:
    reads = Reads(values={("a", Resource.CPU_SHARES): 2, ("b", Resource.CPU_SHARES): 3})
    teller = Teller()
    assert teller.tell(reads) is not None
    assert teller.tell(copy.deepcopy(reads)) is None
    reads.values["b", Resource.CPU_SHARES] = 4
    told = teller.tell(reads)
    assert told == Answers((), (), (1,), (4,))


def test_a_question_is_some_numbers() -> None:
    """Cgroup, resource and owner have a number each, which is told with their first question."""
    first: Any = Reads(withouts={("cpu-burst", "kubepods", Resource.CPU_QUOTA_US): 5})
    told = Teller().tell(first)
    assert told == Answers(("kubepods", "cpu.cfs_quota_us", "cpu-burst"), (2, 0, 1, 2), (0,), (5,))
    assert len(msgspec.msgpack.encode(told)) == 47
