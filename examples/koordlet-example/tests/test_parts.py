"""The parts of this package in a daemon on the fake kernel, as an installed package offers them."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from koordlet_fakefs import FakeHost

from koordlet.config import plugins
from koordlet.config.load import Loaded, load
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability
from koordlet.engine.engine import Engine
from koordlet.engine.parts import Callbacks, build
from koordlet.views.views import Views

PACKAGE = Path(__file__).parent.parent
CONFIG = """
[paths]
state_dir = "{0}/state"
run_dir = "{0}/run"
[sources]
cri = "off"
[nri]
enable = false
[[applications]]
name = "shop"
cgroup = "shop"
qos = "LS"
cpu_request = 2
[[applications]]
name = "batch"
cgroup = "batch"
qos = "BE"
"""


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[None]:
    """The package beside koordlet, with the metadata that pip would write."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    name = project["name"].replace("-", "_")
    info = tmp_path / f"{name}-{project['version']}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head)
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    paths = [str(tmp_path), str(PACKAGE)]
    sys.path[:0] = paths
    plugins.installed.cache_clear()
    yield
    for path in paths:
        sys.path.remove(path)
    plugins.installed.cache_clear()


class Daemon:
    """The engine without its clock: each ``tick`` is a second."""

    def __init__(self, directory: Path, body: str) -> None:
        self.host = FakeHost("hybrid")
        for cgroup in ("shop", "batch"):
            self.host.make_cgroup(cgroup)
            self.host.spawn(cgroup, demand_cores=1.0)
        self.directory = directory
        loaded = self.load(body)
        callbacks = Callbacks(
            lambda: None, lambda wake: None, lambda outcome: self.engine.heard(outcome)
        )
        self.parts = build(self.host, loaded.config, callbacks)
        self.engine = Engine(self.parts, loaded)
        self.views = Views(self.engine, lambda: None)
        self.parts.state.start()
        self.engine.rescan()
        self.engine.tick()
        self.engine.set_capabilities([Capability(Resource.CPU_SHARES, True, "tried")])

    def load(self, body: str) -> Loaded:
        file = self.directory / "koordlet.toml"
        file.write_text(CONFIG.format(self.directory) + body)
        return load(str(file))

    def reload(self, body: str) -> None:
        self.engine.reconfigure(self.load(body))

    def tick(self, times: int = 2) -> None:
        for _ in range(times):
            self.host.advance(1)
            self.engine.tick()

    def shares(self, cgroup: str) -> object:
        return self.parts.cgroups.read(cgroup, Resource.CPU_SHARES)

    def close(self) -> None:
        self.parts.alarms.close()
        self.parts.state.stop()
        self.parts.runner.close()
        self.parts.store.close()


def test_each_part_is_listed_and_off(installed: None, tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "")
    daemon.tick()
    offered = {each.name: each.why for each in daemon.views.doctor()().checks}
    for name in ("be-weight", "request-weight", "processes"):
        assert f"off; plugins.{name}.enable = true" in offered[f"plugin: {name}"]
    assert daemon.shares("batch") == daemon.shares("shop") == 1024
    assert "koordlet_example" not in sys.modules
    daemon.close()


def test_each_part_works_with_its_options(installed: None, tmp_path: Path) -> None:
    body = (
        "[plugins.be-weight]\nenable = true\nshares = 100\n"
        "[plugins.request-weight]\nenable = true\n"
        "[plugins.processes]\nenable = true\n"
    )
    daemon = Daemon(tmp_path, body)
    daemon.tick(3)
    assert (daemon.shares("batch"), daemon.shares("shop")) == (100, 2048)
    answer = daemon.views.query("host_app_processes", {"host_app_name": "shop"}, 60, "last")()
    assert [series.value for series in answer.series] == [1]
    (row,) = daemon.views.strategies("be-weight")().strategies
    assert row.state == "active"
    daemon.close()


def test_a_reload_switches_each_part_on_and_off(installed: None, tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "")
    daemon.tick()
    body = "[plugins.be-weight]\nenable = true\n[plugins.processes]\nenable = true\n"
    daemon.reload(body)
    daemon.tick(3)
    assert daemon.shares("batch") == 64
    assert "processes" in {each.name for each in daemon.views.status().collectors}
    daemon.reload("")
    daemon.tick()
    assert daemon.shares("batch") == 1024
    assert "processes" not in {each.name for each in daemon.views.status().collectors}
    daemon.close()
