"""Records of what benches measured: where, when, on which commit, with all slices.

``bench/records/NAME.json`` is written by ``python -m bench NAME --record`` and committed; the page
of benchmarks and the figures of the README come from there.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bench.figures import Figure, Measured
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost

DIRECTORY = Path(__file__).parent / "records"
_ROOT = Path(__file__).parents[1]
TOLD_COMMIT = "KOORDLET_COMMIT"
_DIGITS, _DIGITS_OF_SLICES = 4, 3


class Machine(msgspec.Struct, frozen=True):
    """``is_virtual``: it runs under a hypervisor, which may take CPU away unseen."""

    cpus: int
    model: str
    is_virtual: bool
    memory_gib: float
    kernel: str
    cgroup: str
    python: str


class Record(msgspec.Struct, frozen=True):
    """``load_before`` and ``load_after``: load averages of 1, 5 and 15 minutes. ``commit``: with a
    ``+`` where files differed from it. ``seed``: None where nothing is drawn. ``guest``: name of
    the emulated guest in which it was measured; empty: on the machine itself."""

    bench: str
    command: str
    date: str
    commit: str
    machine: Machine
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float]
    figures: list[Figure]
    seed: int | None = None
    slices: list[Any] = []
    guest: str = ""

    def figure(self, name: str) -> Figure:
        """Raises KeyError naming it."""
        for each in self.figures:
            if each.name == name:
                return each
        raise KeyError(f"the record of {self.bench} has no figure {name!r}")


def write(
    bench: str,
    command: Sequence[str],
    load_before: tuple[float, float, float],
    measured: Measured,
    guest: str = "",
) -> Path:
    """Replace the record of this bench by what was measured just now. ``command``: arguments of the
    bench, or in a guest the module and its arguments."""
    record = Record(
        bench=bench,
        command=" ".join(("python", "-m", *(command if guest else ("bench", *command)))),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        commit=commit(),
        machine=_machine(),
        load_before=load_before,
        load_after=os.getloadavg(),
        figures=measured.figures,
        seed=measured.seed,
        slices=list(measured.slices),
        guest=guest,
    )
    DIRECTORY.mkdir(exist_ok=True)
    path = DIRECTORY / f"{bench}.json"
    path.write_bytes(_text(record))
    return path


def _text(record: Record) -> bytes:
    """A line for each figure and for each slice, so that what changed can be seen."""
    plain = _rounded(msgspec.structs.replace(record, slices=[]), _DIGITS)
    plain["slices"] = _rounded(record.slices, _DIGITS_OF_SLICES)
    lines = {name: plain.pop(name) for name in ("figures", "slices")}
    encode = msgspec.json.encode
    head = [f"{encode(key).decode()}: {encode(value).decode()}" for key, value in plain.items()]
    for name, items in lines.items():
        inside = ",\n  ".join(encode(item).decode() for item in items)
        head.append(f'"{name}": [\n  {inside}\n ]' if items else f'"{name}": []')
    return ("{\n " + ",\n ".join(head) + "\n}\n").encode()


def read(bench: str) -> Record:
    """Raises FileNotFoundError where it was never recorded."""
    return msgspec.json.decode((DIRECTORY / f"{bench}.json").read_bytes(), type=Record)


def records() -> dict[str, Record]:
    """Return all records, by bench."""
    return {path.stem: read(path.stem) for path in sorted(DIRECTORY.glob("*.json"))}


def _rounded(item: Any, digits: int) -> Any:
    """Plain data whose numbers have as many digits as they are worth."""
    if isinstance(item, msgspec.Struct):
        return _rounded(msgspec.to_builtins(item), digits)
    if isinstance(item, float):
        return float(f"{item:.{digits}g}")
    if isinstance(item, list | tuple):
        return [_rounded(each, digits) for each in item]
    if isinstance(item, dict):
        return {key: _rounded(each, digits) for key, each in item.items()}
    return item


def commit() -> str:
    """Return the commit of this tree; a guest has no git and is told."""
    if (told := os.environ.get(TOLD_COMMIT)) is not None:
        return told

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *arguments], capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", "koordlet", "bench", ":!bench/records")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def _machine() -> Machine:
    with open("/proc/cpuinfo") as file:
        lines = dict(line.split(":", 1) for line in file if ":" in line)
    facts = {key.strip(): value.strip() for key, value in lines.items()}
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cpus=os.cpu_count() or 1,
        model=facts.get("model name", platform.machine()),
        is_virtual="hypervisor" in facts.get("flags", "").split(),
        memory_gib=round(pages / (1 << 30), 1),
        kernel=platform.release(),
        cgroup=detect(LinuxHost()).kind,
        python=platform.python_version(),
    )
