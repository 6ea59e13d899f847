"""One run finds every fault, and nothing that only follows from another one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from koordlet_fakefs import FakeHost

from koordlet.config.load import check

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(text: str, slo: str = "") -> str:
        file = tmp_path / "koordlet.toml"
        file.write_text(text)
        (tmp_path / "slo.yaml").write_text(slo)
        return str(file)

    return _write


def places(file: str, host: FakeHost | None = None) -> list[tuple[str, int | None]]:
    """(key, line) of each error, in file order."""
    return [(each.path, each.line) for each in check(file, host=host).errors]


EVERYTHING = """\
[node]
nme = "x"
reserved_cpus = "5-1"
allocatable = { "kubernetes.io/batch-memory" = "512m", cpu = "-1" }
[node.annotations]
"node.koordinator.sh/reservation" = '{"reservedCPUs": "7-3", "applyPolicy": "Defalt"}'
"node.koordinator.sh/cpu-normalization-ratio" = "0"
[paths]
state_dir = "var/lib"
[daemon]
tick_seconds = 0
memory_budget = "512m"
[api]
group = "no-such-group"
[metrics]
listen = "0.0.0.0:9316"
[collectors.node]
interval_seconds = 0
[tsdb]
retention = "6m"
hot_window = "10m"
max_bytes = "1.5"
[nri]
plugin_index = "7"
[hooks.network-qos]
devices = ["eth0/1"]
[slo]
file = "slo.yaml"
[slo.cpuBurstStrategy]
policy = "atuo"
[slo.resourceUsedThresholdWithBE]
memoryEvictThresholdPercent = 101
cpuEvictThresholdPercent = 40
cpuEvictLowerPercent = 50
[[applications]]
name = "web"
qos = "LS"
systemd_unit = "web.service"
cpu_request = "3"
cpu_limit = "2"
[[applications]]
name = "web"
qos = "ls"
cgroup = "system.slice/web.service"
"""
SLO = """\
spec:
  resourceQOSStrategy:
    beClass:
      resctrlQOS: {catRangeStartPercent: 40, catRangeEndPercent: 30}
      cpuQOS: {groupIdentity: 7}
  systemStrategy: {totalNetworkBandwidth: 100m}
spce: {}
"""


def test_one_run_names_every_fault_of_both_files_and_of_the_machine(write: Write) -> None:
    file = write(EVERYTHING, SLO)
    expected = [
        ("node.nme", 2),
        ("node.reserved_cpus", 3),
        ('node.allocatable["kubernetes.io/batch-memory"]', 4),
        ("node.allocatable.cpu", 4),
        ('node.annotations["node.koordinator.sh/reservation"]', 6),
        ('node.annotations["node.koordinator.sh/reservation"]', 6),
        ('node.annotations["node.koordinator.sh/cpu-normalization-ratio"]', 7),
        ("paths.state_dir", 9),
        ("daemon.tick_seconds", 11),
        ("daemon.memory_budget", 12),
        ("api.group", 14),
        ("metrics.listen", 16),
        ("collectors.node.interval_seconds", 18),
        ("tsdb.retention", 20),
        ("tsdb.max_bytes", 22),
        ("nri.plugin_index", 24),
        ("hooks.network-qos.devices[0]", 26),
        ("slo.cpuBurstStrategy.policy", 30),
        ("slo.resourceUsedThresholdWithBE.memoryEvictThresholdPercent", 32),
        ("slo.resourceUsedThresholdWithBE.cpuEvictLowerPercent", 34),
        ("applications[0].cpu_request", 39),
        ("applications[1].name", 42),
        ("applications[1].qos", 43),
        ("applications[1].cgroup", 44),
        # slo.yaml
        ("resourceQOSStrategy.beClass.resctrlQOS.catRangeStartPercent", 4),
        ("$.spec.resourceQOSStrategy.beClass.cpuQOS.groupIdentity", 5),
        ("$.spec.systemStrategy.totalNetworkBandwidth", 6),
        ("$.spce", 7),
    ]
    assert places(file, FakeHost("hybrid")) == expected


ROWS = EVERYTHING.splitlines()
SETTINGS = [number for number, row in enumerate(ROWS) if "=" in row and row[0] != "["]


@pytest.mark.parametrize("dropped", SETTINGS, ids=lambda number: ROWS[number][:20])
def test_mending_one_line_hides_no_other_fault(write: Write, dropped: int) -> None:
    """Each fault of a single key is found whatever else is wrong."""
    before = {path for path, line in places(write(EVERYTHING, "{}")) if line != dropped + 1}
    rows = [row for number, row in enumerate(ROWS) if number != dropped]
    after = {path for path, _ in places(write("\n".join(rows), "{}"))}
    # What compares the dropped key with another one cannot be found without it.
    pairs = {
        "tsdb.retention",
        "slo.resourceUsedThresholdWithBE.cpuEvictLowerPercent",
        "applications[0].cpu_request",
        "applications[1].name",
        "applications[1].cgroup",
    }
    assert before - after <= pairs


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        # A refused key is not compared with another one.
        ("[tsdb]\nretention = '7m'\nhot_window = 'x'", ["tsdb.hot_window"]),
        ("[tsdb]\nretention = 3\nhot_window = '1h'", ["tsdb.retention"]),
        ("[[applications]]\nname='a'\nqos='LS'\ncgroup=3", ["applications[0].cgroup"]),
        (
            (
                "[[applications]]\nname='a'\nqos='LS'\ncgroup='x'\nmemory_request='2m'\n"
                "memory_limit='1Gi'"
            ),
            ["applications[0].memory_request"],
        ),
        ("applications = 3", ["applications"]),
        ("applications = [3, { name = 'a' }]", ["applications[0]"]),
        (
            (
                "[slo.resourceUsedThresholdWithBE]\ncpuEvictThresholdPercent = -1\n"
                "cpuEvictLowerPercent = 50"
            ),
            ["slo.resourceUsedThresholdWithBE.cpuEvictThresholdPercent"],
        ),
        ("[slo]\nresourceUsedThresholdWithBE = 3", ["slo.resourceUsedThresholdWithBE"]),
        ("[slo]\nhostApplications = [3]", ["slo.hostApplications[0]"]),
        ("[slo]\nhostApplications = [{}]", ["slo.hostApplications[0].name"]),
    ],
)
def test_a_fault_is_told_once(write: Write, text: str, paths: list[str]) -> None:
    found = [path for path, _ in places(write(text))]
    assert found[: len(paths)] == paths
    assert all(path.startswith("applications[1]") for path in found[len(paths) :])


def test_a_contradiction_with_a_default_is_found_beside_other_faults(write: Write) -> None:
    text = "[node]\nnme = 1\n[slo.resourceUsedThresholdWithBE]\nmemoryEvictLowerPercent = 80\n"
    section = "slo.resourceUsedThresholdWithBE"
    assert places(write(text)) == [("node.nme", 2), (f"{section}.memoryEvictLowerPercent", 4)]
    text += "cpuSuppressThresholdPercent = 101\n"
    assert len(places(write(text))) == 3
    # What the file would have said for the other field is not known while it cannot be read.
    broken = 'slo.file = "slo.yaml"\n' + text
    assert len(places(write(broken, f"spec: {{{section[4:]}: {{memoryEvictThreshold: 90}}}}"))) == 3


def test_all_faults_of_a_config_map(write: Write) -> None:
    data = {
        "resource-threshold-config": {
            "clusterStrategy": {"cpuSuppressThresholdPercent": 200},
            "nodeStrategies": [
                {"memoryEvictThresholdPercent": "x"},
                {"nodeSelector": {"matchLabels": {"!": "x"}}},
                {"nodeSelector": {"matchExpressions": [{"operator": "In"}]}},
                3,
            ],
        },
        "cpu-burst-config": {"clusterStrategy": {"policy": 1}},
    }
    body = {key: json.dumps(value) for key, value in data.items()} | {"system-config": "{"}
    slo = json.dumps({"kind": "ConfigMap", "data": body, "dta": {}})
    paths = [path for path, _ in places(write('slo.file = "slo.yaml"', slo))]
    threshold = '$.data["resource-threshold-config"]'.replace('["', ".").replace('"]', "")
    entries = f"{threshold}.nodeStrategies"
    assert set(paths) == {
        "$.dta",
        f"{threshold}.clusterStrategy.cpuSuppressThresholdPercent",
        f"{entries}[0].memoryEvictThresholdPercent",
        f"{entries}[0].nodeSelector",
        f'{entries}[1].nodeSelector.matchLabels["!"]',
        f"{entries}[2].nodeSelector.matchExpressions[0].key",
        f"{entries}[3]",
        "$.data.cpu-burst-config.clusterStrategy.policy",
        "$.data.system-config",
    }


BYTES = [
    # text in the file, bytes or None for refused
    ('"128Mi"', 128 << 20),
    ('"1.5Gi"', 3 << 29),
    ('"512M"', 512_000_000),
    ('"2k"', 2000),
    ("1048576", 1 << 20),
    ("1e6", 1_000_000),
    ('"512m"', None),
    ('"512000m"', None),
    ('"5u"', None),
    ('"1.5"', None),
    ("1.5", None),
    ('"-1Mi"', None),
    ('"512K"', None),
    ('"512MB"', None),
    ('"1GiB"', None),
    ('"0x10"', None),
]


@pytest.mark.parametrize(("text", "size"), BYTES)
@pytest.mark.parametrize(
    "key", ["daemon.memory_budget", "applications[0].memory_limit", "node.allocatable.memory"]
)
def test_bytes_are_whole(write: Write, key: str, text: str, size: int | None) -> None:
    table, _, name = key.rpartition(".")
    head = f"[{table}]\n"
    if table == "applications[0]":
        head = "[[applications]]\nname = 'a'\nqos = 'LS'\ncgroup = 'a'\n"
    errors = check(write(f"{head}{name} = {text}")).errors
    if key.startswith("node") and text == '"512000m"':
        return  # a quantity of any resource; this one is 512
    assert [error.path for error in errors] == ([] if size is not None else [key])


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("512m", 'did you mean "512M" or "512Mi"?'),
        ("512K", "did you mean 512k or 512Ki?"),
        ("2kB", "did you mean 2k or 2Ki?"),
        ("1GiB", "did you mean 1Gi?"),
        ("512MB", "did you mean 512M or 512Mi?"),
    ],
)
def test_a_wrong_suffix_gets_a_suggestion(write: Write, text: str, hint: str) -> None:
    (error,) = check(write(f'[daemon]\nmemory_budget = "{text}"')).errors
    assert hint in error.message


@pytest.mark.parametrize(
    "text",
    [
        'systemStrategy.totalNetworkBandwidth = "100m"',
        'systemStrategy.totalNetworkBandwidth = "-1"',
        'resourceQOSStrategy.lsClass.networkQOS.egressLimit = "10m"',
        'resourceQOSStrategy.beClass.networkQOS.ingressRequest = "-5M"',
    ],
)
def test_bits_are_whole(write: Write, text: str) -> None:
    assert len(check(write(f"[slo]\n{text}")).errors) == 1


def test_cpu_is_not_measured_in_bytes(write: Write) -> None:
    assert len(check(write('[node]\nkubelet_reserved_cpu = "512Mi"')).errors) == 1


HOST = "[[slo.hostApplications]]\nname = '{}'\ncgroupPath = {{ relativePath = '{}' }}\n"
OWN = "[[applications]]\nname = '{}'\nqos = 'BE'\n{}\n"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (
            OWN.format("a", "cgroup = 'system.slice/x.service'")
            + OWN.format("b", "systemd_unit = 'x.service'"),
            "applications[1].systemd_unit",
        ),
        (
            OWN.format("a", "cgroup = 'a.slice/a-b.slice'")
            + OWN.format("b", "systemd_unit = 'a-b.slice'"),
            "applications[1].systemd_unit",
        ),
        (
            OWN.format("a", "cgroup = 'x/y'") + HOST.format("b", "/x/y"),
            "slo.hostApplications[0].cgroupPath",
        ),
        (HOST.format("a", "x") + HOST.format("b", "x"), "slo.hostApplications[1].cgroupPath"),
        (HOST.format("a", "x") + HOST.format("a", "y"), "slo.hostApplications[1].name"),
        (HOST.format("a", "../x"), "slo.hostApplications[0].cgroupPath"),
        (HOST.format("a", "/"), "slo.hostApplications[0].cgroupPath"),
        (OWN.format("a", "systemd_unit = '-.slice'"), "applications[0].systemd_unit"),
        (
            OWN.format("a", "cgroup = 'a'\nthrough_systemd = true"),
            "applications[0].through_systemd",
        ),
    ],
)
def test_two_applications_in_one_cgroup(write: Write, text: str, path: str) -> None:
    assert [found for found, _ in places(write(text))] == [path]


def test_host_applications_of_the_slo_file_are_located_there(write: Write) -> None:
    slo = "hostApplications:\n- {name: a, cgroupPath: {relativePath: x}}\n"
    own = 'slo.file = "slo.yaml"\n' + OWN.format("b", "cgroup = 'x'")
    (error,) = check(write(own, slo)).errors
    assert error.file.endswith("slo.yaml")
    assert (error.path, error.line) == ("hostApplications[0].cgroupPath", 2)


REMARKS = [
    (
        "[node.annotations]\n'node.koordinator.sh/reservaton' = '{}'",
        'node.annotations["node.koordinator.sh/reservaton"]',
    ),
    ("[node.annotations]\n'example.org/x' = '{'", None),
    (
        "[daemon]\ntick_seconds = 5\n[collectors.node]\ninterval_seconds = 2",
        "collectors.node.interval_seconds",
    ),
    ("[daemon]\ntick_seconds = 5", None),
    (
        "[daemon]\ntick_seconds = 30\n[prediction]\ntraining_interval = '10s'",
        "prediction.training_interval",
    ),
    (OWN.format("a", "cgroup = 'a'\npriority = 'koord-prod'"), "applications[0].priority"),
    (OWN.format("a", "cgroup = 'a'\npriority = 'koord-mid'"), None),
    (OWN.format("a", "cgroup = 'a'") + HOST.format("a", "b"), "slo.hostApplications[0].name"),
    ("[node]\nreserved_cpus = '2-9'", "node.reserved_cpus"),
    ("[node]\nkubelet_reserved_cpu = '4'", "node.kubelet_reserved_cpu"),
    ("[hooks.network-qos]\ndevices = ['eth7']", "hooks.network-qos.devices[0]"),
    ("[sources]\ncri = '/run/none.sock'", "sources.cri"),
    ("", None),
]


@pytest.mark.parametrize(("text", "path"), REMARKS)
def test_warnings(write: Write, text: str, path: str | None, tmp_path: Path) -> None:
    own = f"[paths]\nstate_dir = '{tmp_path}/state'\nrun_dir = '{tmp_path}/run'\n"
    own += f"[api]\nsocket = '{tmp_path}/run/api.sock'\n"
    found = check(write(own + text), host=FakeHost("v2"))
    assert found.errors == ()
    assert [each.path for each in found.warnings] == ([path] if path is not None else [])
    assert all(each.line is not None for each in found.warnings)


def test_what_this_machine_makes_impossible(write: Write, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    text = f"""\
[paths]
state_dir = "{tmp_path}/file/state"
run_dir = "/proc/koordlet"
cgroup_root = "/no/cgroups"
[api]
socket = "{tmp_path}/file"
group = "no-such-group"
[tsdb]
path = "{tmp_path}/file"
"""
    host = FakeHost("hybrid")
    assert places(write(text)) == []
    expected = [
        ("paths.state_dir", 2),
        ("paths.run_dir", 3),
        ("paths.cgroup_root", 4),
        ("api.group", 7),
        ("tsdb.path", 9),
    ]
    assert places(write(text), host) == expected
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".koordlet-check")]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[api]\nsocket = '/{0}'", "api.socket"),
        ("[hook-server]\nsocket = '/{0}'", "hook-server.socket"),
        ("[metrics]\nlisten = 'unix:/{0}/xxxxxxxxxxxxxxxxxxxxxxxxx'", "metrics.listen"),
    ],
)
def test_the_longest_socket_counts(write: Write, text: str, path: str) -> None:
    """What is behind a public socket is in a directory beside it, under a longer name."""
    found = places(write(text.format("x" * 85 + "/s")))
    assert found == [(path, 2)]


def test_two_servers_on_one_socket(write: Write) -> None:
    text = "[api]\nsocket = '/run/x.sock'\n[metrics]\nlisten = 'unix:/run//x.sock'"
    assert places(write(text)) == [("metrics.listen", 4)]


def test_a_file_that_is_none_does_not_hang(write: Write, tmp_path: Path) -> None:
    import os

    file = write('slo.file = "pipe"')
    os.mkfifo(tmp_path / "pipe")
    (error,) = check(file).errors
    assert error.message == "is not a regular file"
