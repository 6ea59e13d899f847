"""The JSON schema takes what the decoder takes, and refuses what it refuses key by key."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from koordlet.cli.main import Exit, main
from koordlet.config.errors import ConfigErrors
from koordlet.config.init import PRESETS, preset_text
from koordlet.config.json_schema import schema
from koordlet.config.load import load
from koordlet.config.origins import leaves
from koordlet.config.sample import sample
from koordlet.config.schema import Config
from koordlet.protocol.slo_defaults import DEFAULTS

SCHEMA = schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def _at(path: str) -> dict[str, Any]:
    found = SCHEMA
    for part in path.split("."):
        found = found["properties"][part]
    return found


def test_it_is_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert main(["config", "schema"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == SCHEMA


def test_every_key_stands_there_with_meaning_and_default() -> None:
    every = [*leaves(Config()), *leaves(DEFAULTS, "slo")]
    for leaf in every:
        if leaf.path in ("applications", "slo.extensions"):  # tables of their own, anything
            continue
        key = _at(leaf.path)
        assert len(key["description"]) > 10, leaf.path
        assert ("default" in key) == (leaf.value is not None), leaf.path
    assert _at("daemon.memory_budget")["default"] == "128Mi"
    assert _at("slo.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent") == {
        "type": "integer",
        "minimum": 0,
        "maximum": 100,
        "default": 65,
        "description": "Best-effort work may fill the node's CPU up to this percentage. "
        "[an integer, from 0 to 100]",
    }


def test_the_sample_is_valid() -> None:
    settings, _, application = sample().partition("#[[applications]]")
    for text in (settings, f"{settings}#[[applications]]{application}"):
        VALIDATOR.validate(tomllib.loads(text))
        taken_up = re.sub(r"^#(?=\S)", "", text, flags=re.MULTILINE)
        VALIDATOR.validate(tomllib.loads(taken_up))


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid(name: str) -> None:
    VALIDATOR.validate(tomllib.loads(preset_text(name)))


APPLICATION = '[[applications]]\nname = "a"\nqos = "LS"\ncgroup = "a"\n'


@pytest.mark.parametrize(
    "text",
    [
        "[daemon]\nmode = 'watch'\n",
        "[daemon]\nmoed = 'observe'\n",
        "[daemon]\ntick_seconds = 0\n",
        "[daemon]\ntick_seconds = '1'\n",
        "[deamon]\n",
        "[strategies.cpu-suppress]\nenable = 1\n",
        "[nri]\nplugin_index = '7'\n",
        "[slo.resourceUsedThresholdWithBE]\ncpuSuppressThresholdPercent = 101\n",
        "[slo.resourceQOSStrategy.beClass.cpuQOS]\ngroupIdentity = -2\n",
        APPLICATION.replace("LS", "XL"),
        APPLICATION.replace('name = "a"\n', ""),
        APPLICATION + "cpu_request = true\n",
        APPLICATION + "evict = 'now'\n",
    ],
)
def test_both_refuse(text: str, tmp_path: Path) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_text(text)
    with pytest.raises(ConfigErrors):
        load(str(file))
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(tomllib.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        APPLICATION,
        APPLICATION + "priority = 9500\ncpu_limit = 2\nmemory_limit = '1Gi'\n",
        "[node]\nlabels = {a = 'b'}\nreserved_cpus = '0-1'\n",
        "[hooks.network-qos]\ndevices = ['lo']\n",
        "[slo.resourceQOSStrategy.beClass.networkQOS]\negressLimit = '100M'\ningressLimit = 5\n",
    ],
)
def test_both_take(text: str, tmp_path: Path) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_text(text)
    load(str(file))
    VALIDATOR.validate(tomllib.loads(text))
