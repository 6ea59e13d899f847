"""What is found on a machine, and the configuration that is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from koordlet_fakefs import FakeHost

from koordlet.config.init import PRESETS, Machine, Unit, look, text
from koordlet.config.load import load
from koordlet.kernel.cgroup.layout import detect


class _Host(FakeHost):
    """With device files."""

    devices: tuple[str, ...] = ()

    def exists(self, path: str) -> bool:
        return path in self.devices or super().exists(path)


def _machine(*cgroups: str, layout: Any = "v2", devices: tuple[str, ...] = ()) -> Machine:
    host = _Host(layout)
    for cgroup in cgroups:
        host.make_cgroup(cgroup)
    host.devices = devices
    return look(host, detect(host))


@pytest.mark.parametrize("layout", ["v1", "v2", "hybrid"])
def test_units_that_run(layout: str) -> None:
    found = _machine(
        "system.slice/nginx.service",
        "system.slice/ssh.service",
        "system.slice/systemd-journald.service",
        "system.slice/shop.service",
        "system.slice/system-postgresql.slice/postgresql@15-main.service",
        "batch.slice/restic.service",
        "user.slice/user-1000.slice/user@1000.service/app.slice/nginx.service",
        "init.scope",
        layout=layout,
    )
    assert found.units == (
        Unit("nginx.service", "LS"),
        Unit("postgresql@15-main.service", "LS"),
        Unit("batch.slice", "BE"),
        Unit("restic.service", "BE"),
        Unit("shop.service", ""),
    )
    assert found.preset == "web+batch"


def test_the_preset_follows_from_what_is_there() -> None:
    database = "system.slice/mariadb.service"
    assert _machine(database).preset == "database"
    assert _machine(database, "system.slice/nginx.service").preset == "web+batch"
    assert _machine(database, devices=("/dev/nvidiactl",)).preset == "gpu"
    assert _machine(database, "kubepods/besteffort").preset == "kubernetes"
    assert _machine().preset == "web+batch"


def test_names_that_are_no_units_are_left_out() -> None:
    assert _machine("system.slice/caf\udce9.service", "system.slice/a\tb.service").units == ()


def test_there_is_an_end_of_questions() -> None:
    assert len(_machine(*(f"system.slice/u{i}.service" for i in range(300))).units) == 200


UNITS = (Unit("nginx.service", "LS"), Unit("batch.slice", "BE"), Unit("batch.service", "BE"))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_configuration_is_valid(preset: str, tmp_path: Path) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_text(text(preset, UNITS, ["shop.service"]))
    loaded = load(str(file))
    assert loaded.warnings == ()
    assert [(a.name, a.systemd_unit, a.qos) for a in loaded.config.applications] == [
        ("nginx", "nginx.service", "LS"),
        ("batch", "batch.slice", "BE"),
        ("batch.service", "batch.service", "BE"),  # the name must be unique
    ]
    assert "# Not taken: shop.service" in file.read_text().splitlines()
    assert "systemctl set-property batch.slice CPUWeight=idle" in file.read_text()


@pytest.mark.parametrize("preset", PRESETS)
def test_without_applications_the_examples_are_comments(preset: str, tmp_path: Path) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_text(text(preset, ()))
    loaded = load(str(file))
    assert loaded.config.applications == ()
    assert loaded.slo.resource_used_threshold_with_be.enable
    assert ("#[[applications]]" in file.read_text()) == (preset != "kubernetes")
