"""``koordlet io measure``: what it refuses before it reads a byte, and what it prints."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from koordlet.cli import io
from koordlet.cli.main import Exit, main
from koordlet.config.load import load
from koordlet.decision.snapshot import BlockDevices
from koordlet.kernel.io_measure import LARGE_BYTES, Load, Rate

DEVICES = BlockDevices({"vda": ("254:0",), "vda1": ("254:0",), "md0": ("8:0", "8:16")})


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Load]:
    """A disk vda on which tmp_path lies; the loads that were measured."""
    seen: list[Load] = []

    def measure(descriptor: int, size_bytes: int, load_: Load, seconds: float) -> Rate:
        seen.append(load_)
        return Rate(load_.request_bytes, 1000.0 * len(seen), own_limit=False)

    def opened(*_: object) -> int:
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(io, "read_block_devices", lambda host: DEVICES)
    monkeypatch.setattr(io, "disks_under", lambda directory, devices: ("254:0",))
    monkeypatch.setattr(io, "measure", measure)
    monkeypatch.setattr(io, "open_device", lambda path: (opened(), 1 << 30))
    monkeypatch.setattr(io, "open_nameless", opened)
    return seen


def test_a_device_is_only_read(machine: list[Load], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["io", "measure", "/dev/vda", "-o", "json"]) == Exit.OK
    assert not any(each.is_write for each in machine)
    answer = json.loads(capsys.readouterr().out)
    assert [f["key"] for f in answer["figures"]] == ["rbps", "rseqiops", "rrandiops"]
    assert answer["figures"][0]["value"] == 1000 * LARGE_BYTES
    assert answer["model"] is None
    assert "--directory" in answer["notes"][0]


def test_with_a_directory_the_section_for_the_configuration_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["io", "measure", "vda", "--directory", str(tmp_path), "--size", "16"]) == Exit.OK
    text = capsys.readouterr().out
    section = text[text.index("[slo.") :]
    file = tmp_path / "koordlet.toml"
    file.write_text(section)
    slo = load(str(file)).slo
    assert slo.resource_qos_strategy is not None
    root = slo.resource_qos_strategy.cgroup_root
    assert root is not None and root.blkio_qos is not None and root.blkio_qos.blocks is not None
    (block,) = root.blkio_qos.blocks
    assert block.name == "vda" and block.io_cfg is not None
    assert block.io_cfg.enable_user_model
    assert block.io_cfg.model_read_bps == 1000 * LARGE_BYTES
    assert block.io_cfg.model_write_rand_iops == 6000


def test_a_link_leads_to_its_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As those of /dev/disk/by-id do."""
    link = tmp_path / "virtio-1"
    link.symlink_to("/dev/vda")
    assert main(["io", "measure", str(link), "-o", "json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["device"] == "vda"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nosuch"], "no block device of this machine (md0, vda, vda1)"),
        (["vda", "--directory", "/nowhere/at/all"], "is no directory"),
        (["md0", "--directory", "/"], "lies on 254:0, not on md0 (8:0, 8:16)"),
    ],
)
def test_what_cannot_be_is_refused_first(
    machine: list[Load], arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["io", "measure", *arguments]) == Exit.USAGE
    assert text in capsys.readouterr().err
    assert machine == []


def test_a_file_leaves_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = type(io.shutil.disk_usage(tmp_path))(1 << 40, 1 << 40, 100 << 20)
    monkeypatch.setattr(io.shutil, "disk_usage", lambda path: usage)
    command = ["io", "measure", "vda", "--directory", str(tmp_path), "--size"]
    assert main([*command, "51"]) == Exit.USAGE
    assert "give a smaller --size" in capsys.readouterr().err
    assert main([*command, "50"]) == Exit.OK


def test_a_lower_bound_and_several_disks_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(io, "measure", lambda *_: Rate(4096, 9.0, own_limit=True))
    assert main(["io", "measure", "md0"]) == Exit.OK
    text = capsys.readouterr().out
    assert ">9" in text and "lower bound" in text
    assert "a cost model belongs to one disk" in text
