"""The annotated sample, the documentation and the code say the same."""

from __future__ import annotations

import re
from pathlib import Path

import koordlet.config
from koordlet.config.load import load
from koordlet.config.origins import leaves
from koordlet.config.reference import reference
from koordlet.config.sample import sample
from koordlet.config.schema import Application, Config
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.protocol.slo_defaults import DEFAULTS, effective

PACKAGE = Path(koordlet.config.__file__).parent
REGENERATE = "run: make docs"


def _uncommented(text: str) -> str:
    settings, _, _ = text.partition("#[[applications]]")
    return re.sub(r"^#(?=\S)", "", settings, flags=re.MULTILINE)


def test_files_are_up_to_date() -> None:
    assert (PACKAGE / "koordlet.toml").read_text() == sample(), REGENERATE
    docs = PACKAGE.parents[1] / "docs" / "configuration.md"
    assert docs.read_text() == reference(), REGENERATE


def test_the_sample_is_the_defaults(tmp_path: Path) -> None:
    loaded = load(str(PACKAGE / "koordlet.toml"))
    assert loaded.config == Config()
    assert loaded.slo == effective(NodeSLOSpec())


def test_the_sample_with_every_setting_taken_up_is_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_text(_uncommented(sample()))
    loaded = load(str(file))
    assert loaded.config == Config()
    assert loaded.slo == effective(NodeSLOSpec())
    keys = {leaf.path for leaf in leaves(Config())} - {"applications"}
    keys |= {leaf.path for leaf in leaves(DEFAULTS, "slo") if leaf.value is not None}
    left_out = {key for key in keys if loaded.origins[key] == "default"}
    assert left_out == set()


def test_the_example_application_is_valid(tmp_path: Path) -> None:
    text = sample()
    file = tmp_path / "koordlet.toml"
    file.write_text(re.sub(r"^#(?=\S)", "", text[text.index("#[[applications]]") :], flags=re.M))
    (application,) = load(str(file)).config.applications
    assert application.name == "nginx"
    assert application.request_cpu_milli == 2000


def test_every_key_is_mentioned() -> None:
    example = Application(name="x", qos="LS")
    names = {leaf.path for leaf in leaves(Config())} - {"applications"}
    names |= {leaf.path for leaf in leaves(example)}
    names |= {leaf.path for leaf in leaves(DEFAULTS)} - {"hostApplications", "extensions"}
    for text in (sample(), reference()):
        missing = {n for n in names if not re.search(rf"\b{n.rpartition('.')[2]}\b", text)}
        assert missing == set()


def test_every_key_has_a_meaning() -> None:
    assert [line for line in sample().splitlines() if line.startswith("#  [")] == []
