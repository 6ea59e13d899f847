"""The I/O cost model: weights of groups, and what root says of each disk (blk-iocost.c)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

from koordlet_fakefs.cgroup import Cgroup, Spec
from koordlet_fakefs.parse import refuse, strip

Device = tuple[int, int]
_PERCENT = frozenset({"rpct", "wpct"})
_RATE = frozenset({"min", "max"})
_RATE_MIN, _RATE_MAX = 1.0, 10_000.0
_WORDS: Mapping[str, tuple[str, ...]] = {
    "ctrl": ("auto", "user"),
    "model": ("linear",),
}
QOS_DEFAULTS: Mapping[str, str] = {
    "enable": "0",
    "ctrl": "auto",
    "rpct": "0.00",
    "rlat": "5000",
    "wpct": "0.00",
    "wlat": "5000",
    "min": "1.00",
    "max": "10000.00",
}
MODEL_DEFAULTS: Mapping[str, str] = {
    "ctrl": "auto",
    "model": "linear",
    "rbps": "488636629",
    "rseqiops": "8932",
    "rrandiops": "8518",
    "wbps": "427891549",
    "wseqiops": "28755",
    "wrandiops": "21940",
}


class CostState:
    """Weights of a group (``default`` and by device), and at the root the fields by device."""

    def __init__(self) -> None:
        self.weight = 100
        self.device_weights: dict[Device, int] = {}
        self.fields: dict[tuple[str, Device], dict[str, str]] = {}


def device_of(group: Cgroup, text: str) -> tuple[Device, str]:
    """``MAJ:MIN`` of a disk that exists, and the rest of the line, which must follow after a
    space. EINVAL for other text, ENODEV for another number."""
    text = text.lstrip(" \t\n")
    number, space, rest = text.partition(" ")
    number, newline, _ = number.partition("\n")
    major, colon, minor = number.partition(":")
    if not (colon and major.isdecimal() and minor.isdecimal() and (space or newline)):
        raise refuse(errno.EINVAL)
    device = (int(major), int(minor))
    if device not in {disk[:2] for disk in group.machine.options.disks}:
        raise refuse(errno.ENODEV)
    return device, rest


def _cost(group: Cgroup) -> CostState:
    assert group.io is not None
    return group.io.cost


def read_weight(group: Cgroup) -> str:
    cost = _cost(group)
    rows = [f"{major}:{minor} {w}\n" for (major, minor), w in sorted(cost.device_weights.items())]
    return f"default {cost.weight}\n" + "".join(rows)


def weight_writer(high: int) -> Callable[[Cgroup, str], None]:
    """``[default] N``, ``MAJ:MIN N`` or ``MAJ:MIN default``. EINVAL outside 1..``high``,
    EOPNOTSUPP for a disk of which the root's files say nothing: its queue has no cost model."""

    def number(word: str) -> int:
        if not word.isdecimal() or not 1 <= int(word) <= high:
            raise refuse(errno.EINVAL)
        return int(word)

    def write(group: Cgroup, text: str) -> None:
        cost = _cost(group)
        if ":" not in text:
            cost.weight = number(strip(text).removeprefix("default").strip())
            return
        device, rest = device_of(group, text)
        if device not in {known for _, known in _cost(group.hierarchy.root).fields}:
            raise refuse(errno.EOPNOTSUPP)
        if strip(rest).startswith("default"):
            cost.device_weights.pop(device, None)
        else:
            cost.device_weights[device] = number(strip(rest))

    return write


def _checked(key: str, word: str, defaults: Mapping[str, str]) -> str:
    if key not in defaults or (key in _WORDS and word not in _WORDS[key]):
        raise refuse(errno.EINVAL)
    if key in _PERCENT | _RATE:
        whole, _, part = word.partition(".")
        if not whole.isdecimal() or not (not part or part.isdecimal()):
            raise refuse(errno.EINVAL)
        number = float(word)
        if key in _PERCENT and number > 100:
            raise refuse(errno.EINVAL)
        return f"{min(max(number, _RATE_MIN), _RATE_MAX) if key in _RATE else number:.2f}"
    if key not in _WORDS and not word.isdecimal():
        raise refuse(errno.EINVAL)
    return str(int(word != "0")) if key == "enable" else word


def cost_spec(name: str, defaults: Mapping[str, str]) -> Spec:
    """A root file with ``MAJ:MIN key=value ...`` per device; what a write does not name stays."""

    def read(group: Cgroup) -> str:
        rows = [
            f"{major}:{minor} " + " ".join(f"{key}={word}" for key, word in fields.items())
            for (file, (major, minor)), fields in sorted(_cost(group).fields.items())
            if file == name
        ]
        return "".join(f"{row}\n" for row in rows)

    def write(group: Cgroup, text: str) -> None:
        device, rest = device_of(group, text)
        changes: dict[str, str] = {}
        for pair in rest.split():
            key, _, word = pair.partition("=")
            changes[key] = _checked(key, word, defaults)
        if changes.keys() - {"enable", "ctrl"}:
            changes.setdefault("ctrl", "user")
        before = _cost(group).fields.get((name, device), defaults)
        if changes.get("ctrl") == "auto":
            before = {**defaults, "enable": before["enable"]} if "enable" in defaults else defaults
        after = {**before, **changes}
        if "min" in after and float(after["min"]) > float(after["max"]):
            raise refuse(errno.EINVAL)
        _cost(group).fields[(name, device)] = after

    return Spec(name, read, write, on_child=False)
