from __future__ import annotations

import json
from pathlib import Path

import pytest

from koordlet.config.load import Loaded, check, fingerprint, load
from koordlet.config.slo_file import MAX_BYTES

NODE_SLO_YAML = """\
apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeSLO
metadata:
  name: node-1
spec:
  resourceUsedThresholdWithBE:
    enable: true
    cpuSuppressThresholdPercent: 70
  systemStrategy:
    totalNetworkBandwidth: 10M
"""
CONFIG_MAP_YAML = """\
apiVersion: v1
kind: ConfigMap
data:
  resource-threshold-config: |
    {"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 70},
     "nodeStrategies": [{"name": "xl", "nodeSelector": {"matchLabels": {"pool": "xl"}},
                         "cpuSuppressThresholdPercent": 50}]}
"""
SPEC = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 70}}


def write(directory: Path, slo: str, *, name: str = "slo.yaml", toml: str = "") -> str:
    (directory / name).write_text(slo)
    file = directory / "koordlet.toml"
    file.write_text(f'{toml}\n[slo]\nfile = "{name}"\n')
    return str(file)


def threshold(loaded: Loaded) -> int | None:
    section = loaded.slo.resource_used_threshold_with_be
    assert section is not None
    assert section.enable is True
    return section.cpu_suppress_threshold_percent


@pytest.mark.parametrize(
    "slo",
    [NODE_SLO_YAML, CONFIG_MAP_YAML, json.dumps(SPEC), json.dumps({"spec": SPEC}, indent=2)],
    ids=["node-slo", "config-map", "spec-json", "node-slo-json"],
)
def test_every_form_of_the_file(tmp_path: Path, slo: str) -> None:
    loaded = load(write(tmp_path, slo))
    assert threshold(loaded) == 70
    origins = loaded.origins
    assert origins["slo.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent"] == "slo.yaml"
    assert origins["slo.resourceUsedThresholdWithBE.cpuEvictPolicy"] == "default"
    assert origins["slo.file"] == "koordlet.toml:3"
    assert loaded.files[1].endswith("/slo.yaml")
    assert None not in fingerprint(loaded.files)


def test_node_strategies_are_picked_by_the_labels_of_the_configuration(tmp_path: Path) -> None:
    toml = '[node]\nlabels = { pool = "xl" }'
    assert threshold(load(write(tmp_path, CONFIG_MAP_YAML, toml=toml))) == 50


def test_inline_wins_over_the_file(tmp_path: Path) -> None:
    toml = "[slo.resourceUsedThresholdWithBE]\ncpuSuppressThresholdPercent = 0"
    loaded = load(write(tmp_path, NODE_SLO_YAML, toml=toml))
    assert threshold(loaded) == 0
    origins = loaded.origins
    assert origins["slo.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent"] == (
        "koordlet.toml:2"
    )
    assert origins["slo.resourceUsedThresholdWithBE.enable"] == "slo.yaml"


def test_an_absolute_path(tmp_path: Path) -> None:
    slo = tmp_path / "elsewhere.json"
    slo.write_text(json.dumps(SPEC))
    (tmp_path / "etc").mkdir()
    file = tmp_path / "etc" / "koordlet.toml"
    file.write_text(f'slo.file = "{slo}"')
    assert threshold(load(str(file))) == 70


def test_contradiction_between_two_layers(tmp_path: Path) -> None:
    toml = "[slo.resourceUsedThresholdWithBE]\nmemoryEvictLowerPercent = 60"
    slo = json.dumps({"resourceUsedThresholdWithBE": {"memoryEvictThresholdPercent": 55}})
    (error,) = check(write(tmp_path, slo, toml=toml)).errors
    assert error.path == "slo.resourceUsedThresholdWithBE.memoryEvictLowerPercent"
    assert error.line == 2


SECTION = "resourceUsedThresholdWithBE"
CONTRARY = "memoryEvictThresholdPercent"


@pytest.mark.parametrize(
    ("slo", "line"),
    [
        (f"spec:\n  {SECTION}:\n    {CONTRARY}: 55\n    memoryEvictLowerPercent: 60\n", 4),
        (f'{{"{SECTION}":\n {{"{CONTRARY}": 55, "memoryEvictLowerPercent": 60}}}}', 2),
        (
            CONFIG_MAP_YAML.replace("cpuSuppressThresholdPercent", CONTRARY, 1).replace(
                f'"{CONTRARY}": 70', f'"{CONTRARY}": 55, "memoryEvictLowerPercent": 60'
            ),
            None,
        ),
    ],
)
def test_contradiction_inside_the_file(tmp_path: Path, slo: str, line: int | None) -> None:
    (error,) = check(write(tmp_path, slo)).errors
    assert error.file == str(tmp_path / "slo.yaml")
    assert (error.path, error.line) == (f"{SECTION}.memoryEvictLowerPercent", line)


BURST = "spec:\n  cpuBurstStrategy:\n    cpuBurstPercent"
BURST_PATH = "$.spec.cpuBurstStrategy.cpuBurstPercent"


@pytest.mark.parametrize(
    ("slo", "path", "line", "near"),
    [
        ("spec:\n  cpuBurstStrateg: {}", "$.spec.cpuBurstStrateg", 2, "cpuBurstStrategy"),
        (f"{BURST}: '5'\n", BURST_PATH, 3, ""),
        (f"{BURST}: 5\n    cpuBurstPercent: 6\n", BURST_PATH, 3, ""),
        ("kind: Pod\n", "$.kind", 1, ""),
        ("- 1\n", "$", None, ""),
        ("", "$", None, ""),
        ("a: [\n", "", 2, ""),
        ("1: x\n", "", 1, ""),
        ("spec: !!python/object:os.system {}\n", "", 1, ""),
        ("spec: !thing x\n", "", 1, ""),
        ("spec: 2024-99-99\n", "", 1, ""),
        ('{"spec": NaN}', "$", None, ""),
        ('{"spec": {},\n "sepc": 1}', "$.sepc", 2, "spec"),
        (
            '{"kind": "NodeSLO", "spec": {\n\t"cpuBurstStrateg": {}}}',
            "$.spec.cpuBurstStrateg",
            2,
            "cpuBurstStrategy",
        ),
        ('{"spec":\n 1 2}', "$", 2, ""),
        ("a: &a [*a]\n", "", 1, ""),
        ("x\0y", "", None, ""),
    ],
)
def test_faults(tmp_path: Path, slo: str, path: str, line: int | None, near: str) -> None:
    errors = check(write(tmp_path, slo)).errors
    assert [(error.path, error.line, error.nearest) for error in errors] == [(path, line, near)]
    assert errors[0].file == str(tmp_path / "slo.yaml")


def test_aliases_cannot_blow_up(tmp_path: Path) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    (error,) = check(write(tmp_path, "\n".join(rows))).errors
    assert "more than" in error.message


@pytest.mark.parametrize(("make", "text"), [("none", "No such file"), ("directory", "directory")])
def test_unreadable_files(tmp_path: Path, make: str, text: str) -> None:
    file = write(tmp_path, "")
    (tmp_path / "slo.yaml").unlink()
    if make == "directory":
        (tmp_path / "slo.yaml").mkdir()
    (error,) = check(file).errors
    assert text in error.message


def test_a_file_above_the_limit(tmp_path: Path) -> None:
    file = write(tmp_path, "")
    (tmp_path / "slo.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    (error,) = check(file).errors
    assert error.message == f"larger than {MAX_BYTES} bytes"


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    file = write(tmp_path, "")
    (tmp_path / "slo.yaml").write_bytes(b"a: \xff\n")
    (error,) = check(file).errors
    assert error.message == "byte 3 is not UTF-8"
    (tmp_path / "koordlet.toml").write_bytes(b"[slo]\n\xff")
    (error,) = check(file).errors
    assert error.message == "byte 6 is not UTF-8"
