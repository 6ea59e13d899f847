from __future__ import annotations

import tomllib
from pathlib import Path

from koordlet.config.load import Loaded, load
from koordlet.config.show import changes, show


def load_text(directory: Path, text: str) -> Loaded:
    file = directory / "koordlet.toml"
    file.write_text(text)
    return load(str(file))


TEXT = """\
[node]
name = "n\\"1\\u007f"
labels = { "a/b" = "c" }
[[applications]]
name = "web"
cgroup = "web"
qos = "LS"
priority = "koord-prod"
cpu_request = "1500m"
[slo.systemStrategy]
schedFeatures = { ID_ABSOLUTE_EXPEL = true }
[[slo.hostApplications]]
name = "nginx"
cgroupPath = { base = "Kubepods" }
"""


def test_what_is_shown_is_toml_that_means_the_same(tmp_path: Path) -> None:
    loaded = load_text(tmp_path, TEXT)
    shown = {value.key: value for value in show(loaded)}
    assert shown["node.labels"].value == '{ "a/b" = "c" }'
    assert shown["tsdb.retention"].value == '"12h"'
    assert shown["applications[0].cpu_request"].value == '"1500m"'
    assert "applications[0].cpu_limit" not in shown
    assert shown["slo.hostApplications[0].name"].value == '"nginx"'
    assert shown["slo.hostApplications[0].name"].origin == "koordlet.toml:13"
    assert shown["slo.systemStrategy.schedFeatures"].origin == "koordlet.toml:11"
    again = [f"{k} = {v.value}" for k, v in shown.items() if "[" not in k and k != "applications"]
    reloaded = load_text(tmp_path, "\n".join(again))
    assert reloaded.config.node == loaded.config.node
    assert reloaded.slo.resource_qos_strategy == loaded.slo.resource_qos_strategy
    for value in shown.values():
        assert tomllib.loads(f"x = {value.value}")
        assert value.meaning or value.key.startswith("slo.")


def test_changes_tell_what_needs_a_restart(tmp_path: Path) -> None:
    before = load_text(tmp_path, TEXT)
    after = load_text(
        tmp_path,
        TEXT.replace('name = "web"', 'name = "shop"').replace('cpu_request = "1500m"\n', "")
        + '[daemon]\nmode = "observe"\n[api]\ngroup = "adm"\n',
    )
    found = changes(before, after)
    assert set(found.changed) == {
        "applications[0].name",
        "applications[0].cpu_request",
        "daemon.mode",
        "api.group",
    }
    assert found.needs_restart == ("api.group",)
    assert changes(after, after).changed == ()
