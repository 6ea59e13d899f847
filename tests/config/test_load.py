from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from koordlet.config.errors import ConfigError, ConfigErrors
from koordlet.config.load import check, fingerprint, load
from koordlet.config.schema import Config
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.protocol.slo_defaults import effective


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    def _write(text: str) -> str:
        file = tmp_path / "koordlet.toml"
        file.write_text(text)
        return str(file)

    return _write


def test_an_empty_file_gives_the_defaults(write: Callable[[str], str]) -> None:
    loaded = load(write(""))
    assert loaded.config == Config()
    assert loaded.slo == effective(NodeSLOSpec())
    assert set(loaded.origins.values()) == {"default", "disabled"}


def test_a_missing_file(tmp_path: Path) -> None:
    file = str(tmp_path / "none.toml")
    assert load(file, missing_ok=True).config == Config()
    with pytest.raises(ConfigErrors, match="No such file"):
        load(file)


FULL = """\
[node]
labels = { pool = "xl" }
reserved_cpus = "0-1"
kubelet_reserved_cpu = "500m"

[collectors]
psi.enable = false

[tsdb]
hot_window = "6m"
max_bytes = "10Mi"

[strategies.cpu-suppress]
enable = false

[slo.resourceUsedThresholdWithBE]
ENABLE = true
cpuSuppressThresholdPercent = 80

[[applications]]
name = "web"
systemd_unit = "web.service"
qos = "LS"
cpu_request = 2
memory_limit = "1Gi"

[[applications]]
name = "crunch"
cgroup = "batch/crunch"
qos = "BE"
priority = 5001
"""


def test_values_and_their_units(write: Callable[[str], str]) -> None:
    loaded = load(write(FULL))
    config = loaded.config
    assert config.node.reserved_cpus == frozenset({0, 1})
    assert config.node.kubelet_reserved_cpu_milli == 500
    assert (config.collectors.psi.enable, config.collectors.psi.interval_seconds) == (False, 10.0)
    assert (config.tsdb.hot_window_s, config.tsdb.max_bytes) == (360.0, 10 << 20)
    assert config.strategies.cpu_suppress.enable is False
    web, crunch = config.applications
    assert (web.request_cpu_milli, web.limit_memory_bytes) == (2000, 1 << 30)
    assert (web.request_memory_bytes, web.cgroup) == (None, "")
    assert (crunch.cgroup, crunch.priority) == ("batch/crunch", 5001)
    threshold = loaded.slo.resource_used_threshold_with_be
    assert threshold is not None
    assert (threshold.enable, threshold.cpu_suppress_threshold_percent) == (True, 80)
    assert (threshold.cpu_suppress_policy, threshold.cpu_evict_policy) == (None, "evictByRealLimit")


def test_origins(write: Callable[[str], str]) -> None:
    origins = load(write(FULL)).origins
    expected = {
        "node.labels": "koordlet.toml:2",
        "node.name": "default",
        "collectors.psi.enable": "koordlet.toml:7",
        "collectors.psi.interval_seconds": "default",
        "strategies.cpu-suppress.enable": "koordlet.toml:14",
        "slo.resourceUsedThresholdWithBE.enable": "koordlet.toml:17",
        "slo.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent": "koordlet.toml:18",
        "slo.resourceUsedThresholdWithBE.cpuEvictPolicy": "default",
        "slo.resourceQOSStrategy.beClass.cpuQOS.groupIdentity": "disabled",
        "slo.resourceQOSStrategy.beClass.cpuQOS.enable": "default",
        "applications[0].qos": "koordlet.toml:23",
        "applications[1].priority": "koordlet.toml:31",
        "applications[1].systemd_unit": "default",
    }
    assert {key: origins.get(key) for key in expected} == expected


FAULTS: list[tuple[str, str, int | None, str]] = [
    ("[node]\nreserved_cpu = ''", "node.reserved_cpu", 2, "reserved_cpus"),
    ("[deamon]\n", "deamon", 1, "daemon"),
    ("[Node]\nname = 'x'", "Node", 1, "node"),
    ("[node]\nName = 'x'", "node.Name", 2, "name"),
    ("strategies = 3", "strategies", 1, ""),
    ("[strategies.cpu-supress]", "strategies.cpu-supress", 1, "cpu-suppress"),
    ("[hooks]\ncpu-qos.bvt = 'no'", "hooks.cpu-qos.bvt", 2, ""),
    ("[daemon]\n\nmode = 'Observe'", "daemon.mode", 3, "observe"),
    ("[daemon]\ntick_seconds = true", "daemon.tick_seconds", 2, ""),
    ("[daemon]\ntick_seconds = nan", "daemon.tick_seconds", None, ""),
    ("[daemon]\nmemory_budget = '1Gb'", "daemon.memory_budget", 2, ""),
    ("[daemon]\nmemory_budget = '-1'", "daemon.memory_budget", 2, ""),
    ("[daemon]\nlog_level = 2024-01-01", "daemon.log_level", 2, ""),
    ("[node]\nreserved_cpus = '3-1'", "node.reserved_cpus", 2, ""),
    ("[node]\nlabels = { a = 1 }", "node.labels.a", 2, ""),
    ("[node.labels]\na = 1", "node.labels.a", 2, ""),
    ("[paths]\nstate_dir = 'var'", "paths.state_dir", 2, ""),
    ("[paths]\nstate_dir = '/a/../b'", "paths.state_dir", 2, ""),
    ("[api]\nsocket = '/" + "x" * 107 + "'", "api.socket", 2, ""),
    ("[tsdb]\nhot_window = '5'", "tsdb.hot_window", 2, ""),
    ("[tsdb]\nretention = '5m'\nhot_window = '10m'", "tsdb.retention", 2, ""),
    ("[tsdb]\ncoarse_resolution = '6m'", "tsdb.coarse_resolution", 2, ""),
    (
        "[slo]\nresourceUsedThresholdWithB = {}",
        "slo.resourceUsedThresholdWithB",
        2,
        "resourceUsedThresholdWithBE",
    ),
    ("[slo]\nfil = 'x'", "slo.fil", 2, "file"),
    ("[slo.cpuBurstStrategy]\npolicy = 'atuo'", "slo.cpuBurstStrategy.policy", 2, "auto"),
    (
        "[slo.resourceUsedThresholdWithBE]\nmemoryEvictLowerPercent = 80",
        "slo.resourceUsedThresholdWithBE.memoryEvictLowerPercent",
        2,
        "",
    ),
    ("[[applications]]\nname='a'\nqos='ls'\ncgroup='x'", "applications[0].qos", 3, "LS"),
    ("[[applications]]\nname='a'\ncgroup='x'", "applications[0].qos", 1, ""),
    ("[[applications]]\nname='a'\nqos='LS'", "applications[0]", 1, ""),
    ("[[applications]]\nname='a'\nqos='LS'\ncgroup='/x'", "applications[0].cgroup", 4, ""),
    ("[[applications]]\nname='a'\nqos='LS'\ncgroup='x/../y'", "applications[0].cgroup", 4, ""),
    (
        "[[applications]]\nname='a'\nqos='LS'\nsystemd_unit='x'",
        "applications[0].systemd_unit",
        4,
        "",
    ),
    ("[[applications]]\nname=''\nqos='LS'\ncgroup='x'", "applications[0].name", 2, ""),
    (
        "[[applications]]\nname='a'\nqos='LS'\ncgroup='x'\n[[applications]]\nname='a'\nqos='BE'\ncgroup='y'",
        "applications[1].name",
        6,
        "",
    ),
    (
        "[[applications]]\nname='a'\nqos='LS'\ncgroup='x'\n[[applications]]\nname='b'\nqos='BE'\ncgroup='x'",
        "applications[1].cgroup",
        8,
        "",
    ),
    (
        "[[applications]]\nname='a'\nqos='LS'\ncgroup='x'\ncpu_request='2'\ncpu_limit='1'",
        "applications[0].cpu_request",
        5,
        "",
    ),
    (
        "[[applications]]\nname='a'\nqos='LS'\ncgroup='x'\npriority='koord-pro'",
        "applications[0].priority",
        5,
        "koord-prod",
    ),
    ("a = 1\na = 2", "", 2, ""),
    ("[node", "", 1, ""),
    ("x = " + "[" * 5000, "", None, ""),
    ("x = " + "9" * 5000, "", None, ""),
]


@pytest.mark.parametrize(("text", "path", "line", "near"), FAULTS)
def test_faults(
    write: Callable[[str], str], text: str, path: str, line: int | None, near: str
) -> None:
    file = write(text)
    errors = check(file).errors
    assert [(error.path, error.line, error.nearest) for error in errors] == [(path, line, near)]
    assert errors[0].file == file
    assert errors[0].message


def test_all_faults_are_collected_in_file_order(write: Callable[[str], str]) -> None:
    slo = "[slo]\nfile = 'none.yaml'\n[slo.cpuBurstStrategy]\npolicy = 3\n"
    errors = check(write(f"[node]\nnme = 1\n{slo}[metrics]\nlisten = 5")).errors
    assert [error.path for error in errors] == [
        "node.nme",
        "slo.cpuBurstStrategy.policy",
        "metrics.listen",
        "",
    ]
    assert errors[3].file.endswith("/none.yaml")


@pytest.mark.parametrize(
    ("listen", "ok"),
    [
        ("off", True),
        ("127.0.0.1:0", True),
        ("[::1]:65535", True),
        ("localhost:9316", True),
        ("192.0.2.1:9316", False),
        ("remote:192.0.2.1:9316", True),
        ("remote:[::]:9316", True),
        ("remote:127.0.0.1:9316", True),
        ("remote:off", False),
        ("unix:/run/x.sock", True),
        ("unix:x.sock", False),
        ("127.0.0.1:65536", False),
        ("127.0.0.1", False),
        (":9316", False),
        ("example.invalid:80", False),
        ("127.0.0.1:" + "9" * 5000, False),
        ("", False),
    ],
)
def test_listen(write: Callable[[str], str], listen: str, ok: bool) -> None:
    assert (check(write(f'[metrics]\nlisten = "{listen}"')).errors == ()) is ok


RANGES: list[tuple[str, Any, Any, Any, Any]] = [
    # key, lowest, below it, highest, above it
    ("daemon.tick_seconds", 0.1, 0.09, 60, 60.1),
    ("daemon.cpu_budget_percent", 0, -1, 100, 101),
    ("collectors.numa.interval_seconds", 0.1, 0, 3600, 3601),
    ("tsdb.hot_window", "1m", "59s", "1h", "61m"),
    ("tsdb.retention", "5m", "4m59s", "720h", "721h"),
    ("tsdb.coarse_resolution", "10s", "9s", "5m", "5m1s"),
    ("tsdb.max_bytes", "1Mi", "1Ki", "1Ti", None),
    ("explain.max_bytes", "64Ki", "63Ki", "1Gi", None),
    ("sources.rescan_seconds", 1, 0.9, 3600, 3601),
    ("alarms.psi_stall_percent", 0.1, 0, 100, 100.5),
    ("alarms.min_interval_ms", 10, 9, 60000, 60001),
]


@pytest.mark.parametrize(("key", "lowest", "below", "highest", "above"), RANGES)
def test_edges_of_ranges(
    write: Callable[[str], str], key: str, lowest: Any, below: Any, highest: Any, above: Any
) -> None:
    for value, ok in ((lowest, True), (below, False), (highest, True), (above, False)):
        if value is not None:
            errors = check(write(f"{key} = {value!r}")).errors
            assert [error.path for error in errors] == ([] if ok else [key]), value


def test_fingerprint_sees_edits_replacement_and_absence(write: Callable[[str], str]) -> None:
    file = write("")
    first = fingerprint([file])
    assert fingerprint([file]) == first
    os.utime(file, ns=(1, 1))
    touched = fingerprint([file])
    assert touched != first
    Path(file).unlink()
    assert fingerprint([file]) == (None,)


def test_an_error_reads_as_one_line() -> None:
    error = ConfigError("/etc/k.toml", "node.nme", "unknown key", 3, "name")
    assert str(error) == '/etc/k.toml:3: node.nme: unknown key (did you mean "name"?)'
    assert str(ConfigError("f", "", "gone")) == "f: gone"


def test_a_device_of_another_type_hides_no_other_fault(tmp_path: Path) -> None:
    file = tmp_path / "koordlet.toml"
    file.write_text('[hooks.network-qos]\ndevices = [3, "eth0/1"]\n')
    found = [error.path for error in check(str(file)).errors]
    assert found == ["hooks.network-qos.devices[0]", "hooks.network-qos.devices[1]"]
