"""The file in hookserver.d."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from koordlet.decision.strategy import Stage
from koordlet.hookserver.config_file import advertised, remove_config, write_config

STAGES = ("PreRunPodSandbox", "PreCreateContainer")


def test_the_text_is_what_a_proxy_of_the_reference_reads(tmp_path: Path) -> None:
    path = tmp_path / "hookserver.d" / "koordlet.json"
    assert write_config(str(path), "/run/koordlet/hooks.sock", "Ignore", STAGES)
    assert path.read_text() == (
        '{\n\t"remote-endpoint": "/run/koordlet/hooks.sock",\n\t"failure-policy": "Ignore",\n'
        '\t"runtime-hooks": [\n\t\t"PreRunPodSandbox",\n\t\t"PreCreateContainer"\n\t]\n}'
    )
    assert path.stat().st_mode & 0o777 == 0o644
    assert [p.name for p in path.parent.iterdir()] == ["koordlet.json"]


def test_it_is_written_when_it_differs(tmp_path: Path) -> None:
    path = tmp_path / "koordlet.json"
    path.write_bytes(b"\xff")
    assert write_config(str(path), "/s", "Ignore", STAGES)
    inode = path.stat().st_ino
    assert not write_config(str(path), "/s", "Ignore", STAGES)
    assert path.stat().st_ino == inode
    assert write_config(str(path), "/s", "Fail", iter(STAGES))
    assert json.loads(path.read_text())["failure-policy"] == "Fail"


def test_an_unfinished_one_is_no_json_and_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "koordlet.json.new").write_text("half")
    assert write_config(str(tmp_path / "koordlet.json"), "/s", "Ignore", STAGES)
    assert [p.name for p in tmp_path.iterdir()] == ["koordlet.json"]


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        write_config(str(tmp_path / "file" / "koordlet.json"), "/s", "Ignore", STAGES)


@pytest.mark.parametrize(
    ("content", "gone"),
    [
        ('{"remote-endpoint":"/s"}', True),
        ('{"remote-endpoint":"/other"}', False),
        ("[]", False),
        ("{", False),
        (None, False),
    ],
)
def test_only_ours_is_removed(tmp_path: Path, content: str | None, gone: bool) -> None:
    path = tmp_path / "koordlet.json"
    if content is not None:
        path.write_text(content)
    assert remove_config(str(path), "/s") is gone
    assert path.exists() is (content is not None and not gone)


def test_stages_that_only_tell_are_asked_for_too() -> None:
    served = {Stage.CREATE_CONTAINER, Stage.RUN_POD_SANDBOX, Stage.REMOVE_POD_SANDBOX}
    assert advertised(served) == (
        "PreRunPodSandbox",
        "PostStopPodSandbox",
        "PreCreateContainer",
        "PreStartContainer",
        "PostStopContainer",
        "PreUpdatePodSandboxResources",
    )
