"""Files that describe accelerators."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from koordlet_fakefs import FakeHost
from koordlet_fakefs.devices import Devices
from koordlet_fakefs.files import FilesDirectory

from koordlet.collectors.devices.xpu import DIRECTORY
from koordlet.decision.devices import HEALTHY, Health, Link, Place, State, Xpu
from koordlet.kernel.devices import xpu
from koordlet.kernel.devices.xpu import MOST_BYTES, XpuReader, parse
from koordlet.kernel.linux import LinuxHost
from koordlet.protocol.quantity import parse_quantity

PATH = f"{DIRECTORY}/a.json"
WHOLE = {
    "vendor": "huawei",
    "model": "Ascend-910B",
    "uuid": "185011D4-21104518",
    "minor": "3",
    "resources": {"gpu-core": "100", "gpu-memory": "64Gi", "huawei.com/npu-core": "20"},
    "topology": {
        "p2pLinks": [{"peerMinor": "5,1,2", "type": "HCCS"}],
        "mustHonorPartition": True,
        "socketID": "0",
        "nodeID": "1",
        "pcieID": "pci0000:80",
        "busID": "0000:81:00.0",
    },
    "status": {"healthy": False, "errCode": "80E01801", "errMessage": "HBM double bit error"},
}


def of(*devices: Any) -> bytes:
    return json.dumps(devices).encode()


def test_all_that_a_file_can_say() -> None:
    found = parse(of(WHOLE), PATH)
    assert found.refused == ()
    assert found.xpus == (
        Xpu(
            uuid="185011D4-21104518",
            minor=3,
            vendor="huawei",
            model="Ascend-910B",
            resources={
                "koordinator.sh/gpu-core": parse_quantity("100"),
                "koordinator.sh/gpu-memory": parse_quantity("64Gi"),
                "huawei.com/npu-core": parse_quantity("20"),
            },
            place=Place("0000:81:00.0", "pci0000:80", 1),
            links=(Link((1, 2, 5), "HCCS"),),
            links_are_binding=True,
            health=Health(State.UNHEALTHY, "80E01801", "HBM double bit error"),
        ),
    )


def test_as_little_as_a_file_can_say() -> None:
    (found,) = parse(of({"uuid": "x", "minor": "0"}), PATH).xpus
    assert (found.uuid, found.minor, found.place, found.links) == ("x", 0, None, ())
    assert found.health == Health(why="its file does not say")
    (found,) = parse(of({"uuid": "x", "minor": "0", "status": {"healthy": True}}), PATH).xpus
    assert found.health is HEALTHY


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "empty text"),
        (b"{}", "not a list of devices"),
        (b"[{]", "JSON syntax error"),
        (b"\xff", "byte 0 is not UTF-8"),
        (b"[" * 100 + b"]" * 100, "nested deeper than 64 levels"),
        (b"[" + b"1," * 9000 + b"1]", "holds more than 8192 values"),
        (of("x"), "device 0: $: must be"),
        (of({"minor": "0"}), "device 0: it has no uuid"),
        (of({"uuid": "x", "minor": ""}), "minor '' is not a number up to 4095"),
        (of({"uuid": "x", "minor": "-1"}), "minor '-1' is not a number"),
        (of({"uuid": "x", "minor": "4096"}), "minor '4096' is not a number up to 4095"),
        (of({"uuid": "x", "minor": "1" * 300}), "is not a number"),
        (of({"uuid": "x", "minor": 1}), "$.minor: must be"),
        (of({"uuid": "x" * 400, "minor": "1"}), "$.uuid"),
        (of(WHOLE | {"topology": {"nodeID": "two"}}), "topology.nodeID 'two' is not a number"),
        (
            of(WHOLE | {"topology": {"p2pLinks": [{"peerMinor": "1,x"}]}}),
            "topology.p2pLinks.peerMinor 'x' is not a number",
        ),
    ],
)
def test_what_cannot_be_read_is_named(data: bytes, fault: str) -> None:
    found = parse(data, PATH)
    assert found.xpus == ()
    (refused,) = found.refused
    assert refused.startswith(f"{PATH}: ")
    assert fault in refused


def test_a_bad_amount_costs_that_amount_alone() -> None:
    found = parse(of(WHOLE | {"resources": {"gpu-core": "many", "a": "-1", "b": "7"}}), PATH)
    assert found.xpus[0].resources == {"b": parse_quantity("7")}
    assert [each.partition("resources.")[2][:9] for each in found.refused] == [
        "gpu-core:",
        "a: -1 is ",
    ]


def test_a_bad_device_costs_that_device_alone() -> None:
    """In the reference one bad file discards all."""
    found = parse(of(WHOLE | {"minor": "x"}, WHOLE), PATH)
    assert [each.minor for each in found.xpus] == [3]
    assert len(found.refused) == 1


class Files:
    def __init__(self) -> None:
        self.host = FakeHost()
        self.reader = XpuReader(self.host, DIRECTORY)

    @property
    def directory(self) -> FilesDirectory:
        return Devices(self.host.root).files(DIRECTORY)

    def uuids(self) -> list[str]:
        return [each.uuid for each in self.reader.read().xpus]


def test_without_the_directory_there_are_none() -> None:
    assert Files().reader.read() == xpu.NOTHING


def test_files_come_change_and_go() -> None:
    files = Files()
    files.directory.put("a.json", of(WHOLE))
    files.directory.put("b.json", of(WHOLE | {"uuid": "b"}, WHOLE | {"uuid": "a"}))
    assert files.uuids() == ["185011D4-21104518", "a", "b"]
    files.directory.put("b.json", of(WHOLE | {"uuid": "c"}))
    assert files.uuids() == ["185011D4-21104518", "c"]
    files.directory.drop("a.json")
    assert files.uuids() == ["c"]


def test_a_bad_file_costs_that_file_alone() -> None:
    files = Files()
    files.directory.put("a.json", b"nonsense")
    files.directory.put("b.json", of(WHOLE | {"uuid": "b"}))
    found = files.reader.read()
    assert [each.uuid for each in found.xpus] == ["b"]
    (refused,) = found.refused
    assert refused.startswith(f"{DIRECTORY}/a.json: ")


def test_a_file_is_parsed_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    files, parsed = Files(), []
    monkeypatch.setattr(xpu, "parse", lambda data, path: parsed.append(path) or xpu.NOTHING)
    files.directory.put("a.json", of(WHOLE))
    for _ in range(3):
        files.reader.read()
    assert len(parsed) == 1
    files.directory.put("a.json", of(WHOLE | {"minor": "4"}))
    files.reader.read()
    assert len(parsed) == 2


def test_a_uuid_that_stands_twice_counts_once() -> None:
    files = Files()
    files.directory.put("a.json", of(WHOLE))
    files.directory.put("b.json", of(WHOLE | {"minor": "9"}))
    found = files.reader.read()
    assert [each.minor for each in found.xpus] == [3]
    assert found.refused == (f"{DIRECTORY}: 185011D4-21104518 stands there twice",)


def test_how_much_is_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST_FILES", 3), ("MOST_DEVICES", 2)):
        monkeypatch.setattr(xpu, name, most)
    files = Files()
    for number in range(5):
        files.directory.put(f"{number}.json", of(WHOLE | {"uuid": f"u{number}"}))
    found = files.reader.read()
    assert [each.uuid for each in found.xpus] == ["u0", "u1"]
    assert found.refused == (
        f"{DIRECTORY}: more than 3 files; the others not read",
        f"{DIRECTORY}: more than 2 devices",
    )


def test_on_a_real_disk_only_ordinary_files_of_a_bounded_size(tmp_path: Path) -> None:
    """A pipe would keep its reader waiting for ever."""
    os.mkfifo(tmp_path / "a.pipe")
    (tmp_path / "b.directory").mkdir()
    (tmp_path / "c.json").write_bytes(b"[" + b" " * MOST_BYTES + b"]")
    (tmp_path / "d.json").write_bytes(of(WHOLE))
    found = XpuReader(LinuxHost(), str(tmp_path)).read()
    assert [each.minor for each in found.xpus] == [3]
    assert found.refused == (f"{tmp_path}/c.json: larger than {MOST_BYTES} bytes",)
