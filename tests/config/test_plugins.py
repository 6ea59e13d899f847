"""Parts of other packages: what is wrong with one is said, and costs nobody else anything."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from koordlet.config import plugins
from koordlet.config.errors import ConfigErrors
from koordlet.config.load import check, load

STRATEGY = """
from typing import Annotated
from msgspec import Meta
from koordlet.decision.options import Options, about
from koordlet.decision.plan import Decision, Plan
from koordlet.decision.strategy import Hook, Level, Strategy
from koordlet.decision.resource import Resource
from koordlet.protocol.errors import Problem

class Sized(Options, frozen=True):
    size: Annotated[Annotated[int, Meta(ge=1, le=9)], about("How big.")] = 3

def rules(options):
    if options.size == 4:
        yield Problem("size", "must not be 4")
    if options.size == 5:
        raise RuntimeError("a defect of the check")

def decide(snapshot, memory, options):
    return Decision(Plan("sized"))

SIZED = Strategy(name="sized", help="A test.", function=decide, initial=None, options=Sized(),
                 check=rules)
TWICE = Hook(name="twice", help="A test.", options=Options(), levels=(Level.POD,),
             function=lambda subject, snapshot, _: None, writes=(Resource.CPU_SHARES,))
OTHER = "no part"
"""
ENTRIES = """
[koordlet.strategies]
sized = plugged:SIZED
cpu-suppress = plugged:SIZED
odd = plugged:OTHER
gone = nowhere.at.all:STRATEGY
lost = plugged:MISSING
[koordlet.hooks]
twice = plugged:TWICE
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path) -> Iterator[None]:
    info = tmp_path / "site" / "plugged-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    (tmp_path / "site" / "plugged.py").write_text(STRATEGY)
    sys.path.insert(0, str(tmp_path / "site"))
    plugins.installed.cache_clear()
    yield
    sys.path.remove(str(tmp_path / "site"))
    sys.modules.pop("plugged", None)
    plugins.installed.cache_clear()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    def to(text: str) -> str:
        file = tmp_path / "koordlet.toml"
        file.write_text(text)
        return str(file)

    return to


def test_options_are_typed_and_reach_the_part(write: Callable[[str], str]) -> None:
    tables = load(write("[plugins.sized]\nenable = true\nsize = 7\n")).config.plugins
    (part,) = plugins.load(tables).of("strategies")
    assert part.options.size == 7  # type: ignore[attr-defined]
    assert not plugins.load({"sized": {"enable": False, "size": "x"}}).parts


@pytest.mark.parametrize(
    ("line", "path", "message"),
    [
        ("size = 12", "plugins.sized.size", "from 1 to 9"),
        ("sise = 2", "plugins.sized.sise", ""),
        ("size = 4", "plugins.sized.size", "must not be 4"),
        ("size = 5", "plugins.sized", "RuntimeError: a defect of the check"),
    ],
)
def test_a_bad_option_is_a_fault_of_the_file(
    write: Callable[[str], str], line: str, path: str, message: str
) -> None:
    with pytest.raises(ConfigErrors) as found:
        load(write(f"[plugins.sized]\nenable = true\n{line}\n"))
    (error,) = found.value.errors
    assert error.path == path
    assert message in error.message


def test_enable_is_true_or_false(write: Callable[[str], str]) -> None:
    (error,) = check(write('[plugins.sized]\nenable = "yes"\n')).errors
    assert (error.path, error.line) == ("plugins.sized.enable", 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nobody", "no installed package offers a part of this name; installed: "),
        ("size", "no installed package offers"),
        ("cpu-suppress", "koordlet has a part 'cpu-suppress' of its own (plugged 1.2)"),
        ("odd", "plugged:OTHER of plugged 1.2 is no Strategy 'odd'"),
        ("gone", "plugged 1.2: cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("lost", "plugged 1.2: cannot be imported: AttributeError"),
        ("twice", "hooks cpu-qos and twice both set cpu.shares at level pod"),
    ],
)
def test_what_cannot_be_had_is_a_warning_and_the_rest_starts(
    write: Callable[[str], str], name: str, message: str
) -> None:
    file = write(f"[plugins.{name}]\nenable = true\n[plugins.sized]\nenable = true\n")
    loaded = load(file)
    (warning,) = loaded.warnings
    assert warning.path == f"plugins.{name}"
    assert message in warning.message
    assert [part.name for part in plugins.load(loaded.config.plugins).of("strategies")] == ["sized"]
