from __future__ import annotations

import msgspec
import pytest

from koordlet.decision.plan import Victim, VictimKind
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Evicting, Terminating
from koordlet.inputs.packing import packed, readable, unpacked

CAFE = "kubepods/caf\udce9\\x41"


class Memory(msgspec.Struct, frozen=True):
    held: dict[str, tuple[str, int]] = {}
    resource: Resource = Resource.CPU_SHARES
    names: frozenset[str] = frozenset()


def test_names_that_are_not_utf8() -> None:
    memory = Memory({CAFE: (CAFE, 1)}, names=frozenset({"a\\b", CAFE}))
    assert unpacked(packed(memory), Memory) == memory


def test_structs_as_keys() -> None:
    victim = Victim(VictimKind.APPLICATION, CAFE)
    evicting = Evicting({victim: Terminating("cpu-evict", 1.5)}, failed={victim: "stuck"})
    assert unpacked(packed(evicting), Evicting) == evicting


def test_plain_values_are_plain_msgpack() -> None:
    assert packed(Memory({"a\\b": ("c", 2)})) == msgspec.msgpack.encode(Memory({"a\\b": ("c", 2)}))


class Odd:
    """What msgpack does not know."""


class OddMemory(msgspec.Struct, frozen=True):
    inner: Odd


def test_what_msgpack_does_not_know_is_not_read_back_as_something_else() -> None:
    with pytest.raises(msgspec.ValidationError):
        unpacked(packed(OddMemory(Odd())), OddMemory)
    with pytest.raises(msgspec.ValidationError):
        unpacked(packed(Odd()), Odd)


def test_a_number_beyond_64_bits() -> None:
    assert packed({"memory": 2**70}) != packed({"memory": 2**71})
    with pytest.raises(msgspec.ValidationError):
        unpacked(packed({"memory": 2**70}), Memory)
    with pytest.raises(OverflowError):
        readable({"memory": 2**70})
