"""Presets are valid, short, and end nobody's work."""

from __future__ import annotations

from pathlib import Path

import pytest

import koordlet.config
from koordlet.cli.arguments import Command
from koordlet.cli.commands import COMMANDS
from koordlet.cli.main import Exit, main
from koordlet.config.init import PRESETS, preset_text
from koordlet.config.load import load
from koordlet.views.armed import arms

DIRECTORY = Path(koordlet.config.__file__).parent / "presets"


def test_presets_are_the_files() -> None:
    assert {file.stem for file in DIRECTORY.iterdir()} == set(PRESETS)


def _init(commands: tuple[Command, ...] = COMMANDS) -> Command:
    (config,) = (each for each in commands if each.name == "config")
    (init,) = (each for each in config.children if each.name == "init")
    return init


def test_the_command_offers_them() -> None:
    (preset,) = (each for each in _init().arguments if "--preset" in each.names)
    assert preset.options["choices"] == PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_preset(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = DIRECTORY / f"{name}.toml"
    assert len(file.read_text().splitlines()) <= 40
    assert preset_text(name).startswith(f"# {name}: ")
    assert main(["config", "check", "--file-only", str(file)]) == Exit.OK
    printed = capsys.readouterr().out
    # No warning.
    assert printed == f"{file}: valid\nnothing is armed: no eviction is switched on\n"
    loaded = load(str(file))
    assert arms(loaded) == ()
    assert loaded.slo.resource_used_threshold_with_be.enable
    classes = {application.qos for application in loaded.config.applications}
    assert classes == (set() if name == "kubernetes" else {"LS", "BE"})
