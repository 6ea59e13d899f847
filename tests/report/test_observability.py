"""The alert rules and the dashboard ask for series that exist, in PromQL that Prometheus takes."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from koordlet.decision.family import Family, Kind
from koordlet.report.metrics import FAMILIES, PREFIX
from tests.promtool import find_promtool

DIRECTORY = Path(__file__).parents[2] / "deploy" / "observability"
ALERTS = DIRECTORY / "alerts.yaml"
FROM_THE_SCRAPE = {"instance", "job"}
VARIABLES = {"$__rate_interval": "5m", "$instance": ".*"}
SERIES = re.compile(rf"\b({PREFIX}\w+)(?:\{{([^}}]*)\}})?")
GROUPED = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right) *\(([^)]*)\)")
PLACEHOLDER = re.compile(r"\{\{ *(?:\$labels\.)?(\w+)")


def _rules() -> Iterator[tuple[str, str, str]]:
    """Name, expression, and the texts that name labels."""
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], " ".join(rule["annotations"].values())


def _panels() -> Iterator[tuple[str, str, str]]:
    dashboard = json.loads((DIRECTORY / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"], ""


EXPRESSIONS = [pytest.param(*each, id=each[0]) for each in (*_rules(), *_panels())]


def _family(series: str) -> tuple[Family, set[str]]:
    """And the labels of the series. Raises KeyError for a series that no page has."""
    name = series.removeprefix(PREFIX)
    suffix = re.search(r"_(bucket|sum|count)$", name)
    if suffix and (family := FAMILIES.get(name[: suffix.start()])) is not None:
        assert family.kind is Kind.HISTOGRAM, series
        extra = {"le"} if suffix[1] == "bucket" else set()
    else:
        family, extra = FAMILIES[name], set()
        assert family.kind is not Kind.HISTOGRAM, f"{series} is a histogram"
    node = {"node"} if family.node else set()
    return family, {*family.labels, *node, *extra, *FROM_THE_SCRAPE}


def _check(expression: str, texts: str) -> None:
    labels = set(FROM_THE_SCRAPE)
    for series, selector in SERIES.findall(expression):
        _, its = _family(series)
        labels |= its
        asked = re.findall(r"(\w+) *(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', selector))
        assert set(asked) <= its, series
    for grouped in GROUPED.findall(expression):
        assert {each.strip() for each in grouped.split(",")} <= labels, grouped
    assert set(PLACEHOLDER.findall(texts)) - {"value"} <= labels, texts


@pytest.mark.parametrize(("name", "expression", "texts"), EXPRESSIONS)
def test_every_series_and_label_exists(name: str, expression: str, texts: str) -> None:
    _check(expression, texts.replace("$value", "value"))


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        ("koordlet_decisions > 0", ""),
        ("koordlet_tick_duration_seconds > 0", ""),
        ("koordlet_conflicts_sum > 0", ""),
        ('koordlet_pod_psi{qos="LS"}', ""),
        ("sum by (pod_uid) (koordlet_conflicts)", ""),
        ("koordlet_conflicts", "{{ $labels.owner }}"),
    ],
)
def test_the_check_finds_what_does_not_exist(expression: str, texts: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        _check(expression, texts)


def test_each_alert_says_what_is_wrong_and_what_to_do() -> None:
    rules = [
        rule for each in yaml.safe_load(ALERTS.read_text())["groups"] for rule in each["rules"]
    ]
    assert rules
    for rule in rules:
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        for text in rule["annotations"].values():
            assert text.endswith("."), text


def test_promtool_takes_the_alerts() -> None:
    subprocess.run([find_promtool(), "check", "rules", str(ALERTS)], check=True)


def test_promtool_takes_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    rules = []
    for number, (_, expression, _) in enumerate(_panels()):
        for variable, value in VARIABLES.items():
            expression = expression.replace(variable, value)
        if not expression.startswith("label_values("):
            rules.append({"record": f"panel_{number}", "expr": expression})
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    subprocess.run([find_promtool(), "check", "rules", str(file)], check=True)


SCENES = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: '{{__name__="koordlet_pod_psi",instance="a",pod_uid="1",pod_name="web",\
pod_namespace="n",psi_resource_type="cpu",psi_degree="some",psi_precision="avg60"}}'
        values: 30x30
      - series: '{{__name__="koordlet_pod_psi",instance="a",pod_uid="2",pod_name="batch",\
pod_namespace="n",psi_resource_type="cpu",psi_degree="some",psi_precision="avg60"}}'
        values: 90x30
      - series: koordlet_container_resource_requests{{instance="a",pod_uid="2",resource="r"}}
        values: 1x30
      - series: koordlet_collector_success{{instance="a",collector="psi"}}
        values: 0x30
      - series: koordlet_collector_shed{{instance="a",collector="psi"}}
        values: 1x30
      - series: koordlet_pod_eviction{{instance="a",reason="memory"}}
        values: 0+1x30
      - series: koordlet_pod_eviction{{instance="b",reason="memory"}}
        values: 7x30
    alert_rule_test:
      - alertname: LatencySensitivePodWaitsForCPU
        eval_time: 15m
        exp_alerts:
          - exp_labels: {{severity: ticket, instance: a, pod_uid: "1", pod_name: web, \
pod_namespace: n, psi_resource_type: cpu, psi_degree: some, psi_precision: avg60}}
            exp_annotations:
              summary: "a: pod n/web, which has no batch resources, waits for a \
CPU 30 % of the time."
              action: "Run `koordlet explain web`. Compare the pod's own CPU limit with \
koordlet_container_cpu_throttled_ratio first: a limit makes it wait, too."
      - {{alertname: KoordletCollectorFailing, eval_time: 20m, exp_alerts: []}}
      - alertname: KoordletEvictsOften
        eval_time: 25m
        exp_alerts:
          - exp_labels: {{severity: ticket, instance: a, reason: memory}}
            exp_annotations:
              summary: "a: more than ten pods evicted within an hour."
              action: "Run `koordlet events`. Either the thresholds of memory are too low, or the \
scheduler gives the node more best-effort pods than it has room for."
"""


def test_alerts_fire_for_whom_they_are_meant(tmp_path: Path) -> None:
    file = tmp_path / "scenes.yaml"
    file.write_text(SCENES.format(rules=ALERTS))
    done = subprocess.run(
        [find_promtool(), "test", "rules", str(file)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
