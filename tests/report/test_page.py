"""The metrics page: golden file, validity by the client library's parser, the table itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from koordlet.decision.names import encodable
from koordlet.decision.plan import Gauge
from koordlet.report import metrics as table
from koordlet.report.metrics import FAMILIES, Kind, Page
from koordlet.report.page import encode, lines
from koordlet.report.registry import Metrics

GOLDEN = Path(__file__).parent / "golden" / "metrics.txt"
ANY_TEXT = st.text(st.characters(exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"))


def render(metrics: Metrics, *pages: Page) -> bytes:
    return encode(list(lines(metrics, *pages)))


def _full() -> Metrics:
    """Every family of the table, so that a new one changes the golden file."""
    metrics = Metrics(node="node-1")
    for number, family in enumerate(FAMILIES.values()):
        labels = tuple(f"{name}-value" for name in family.labels)
        if family.kind is Kind.HISTOGRAM:
            for observed in (0.0, *family.buckets[:2], family.buckets[-1] * 2):
                metrics.observe(family, observed, labels)
        elif family.kind is Kind.COUNTER:
            metrics.inc(family, labels)
            metrics.inc(family, labels, by=number)
        else:
            metrics.set(family, number + 0.5, labels)
    metrics.replace(
        table.HOST_APPLICATION_RESOURCE_USAGE,
        {
            ("web", "memory", "koord-prod", "LS"): 314572800,
            ("web", "cpu", "koord-prod", "LS"): 1.25,
            ('odd "name"\\\n', "cpu", "", "BE"): float("nan"),
        },
    )
    return metrics


def test_the_whole_page_is_the_golden_file() -> None:
    """KOORDLET_UPDATE_GOLDEN=1 rewrites it; look at the difference before committing."""
    found = render(_full(), Page.INTERNAL, Page.EXTERNAL)
    if os.environ.get("KOORDLET_UPDATE_GOLDEN"):
        GOLDEN.write_bytes(found)
    assert found.decode() == GOLDEN.read_text()


def test_the_client_librarys_parser_reads_the_page() -> None:
    text = render(_full(), Page.INTERNAL, Page.EXTERNAL).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert set(families) == {f"koordlet_{name}" for name in FAMILIES}
    # The parser adds the suffix to counters by itself; the page must not have it.
    assert families["koordlet_decisions"].samples[0].name == "koordlet_decisions_total"
    assert "_total" not in text
    psi = families["koordlet_container_psi"].samples[0]
    assert psi.labels["node"] == "node-1"
    assert set(psi.labels) == {"node", *table.CONTAINER_PSI.labels}
    buckets = [
        (sample.labels["le"], sample.value)
        for sample in families["koordlet_resource_update_duration_milliseconds"].samples
        if sample.name.endswith("_bucket")
    ]
    assert buckets == [
        ("0.01", 2), ("0.04", 3), ("0.16", 3), ("0.64", 3), ("2.56", 3),
        ("10.24", 3), ("40.96", 3), ("163.84", 3), ("+Inf", 4),
    ]  # fmt: skip


def test_pages_split_as_in_the_reference() -> None:
    internal = render(_full(), Page.INTERNAL)
    external = render(_full(), Page.EXTERNAL)
    assert internal + external == render(_full(), Page.INTERNAL, Page.EXTERNAL)
    assert b"koordlet_pod_psi" in external
    assert b"koordlet_pod_psi" not in internal
    assert b"koordlet_node_used_cpu_cores" in internal
    assert b"koordlet_node_used_cpu_cores" not in external


@given(ANY_TEXT, st.floats())
def test_any_label_and_value_parses_back(text: str, value: float) -> None:
    metrics = Metrics(node="n")
    metrics.set(table.CAPABILITY, value, (text,))
    (family,) = text_string_to_metric_families(render(metrics, Page.INTERNAL).decode())
    (sample,) = family.samples
    assert sample.labels == {"feature": encodable(text)}
    assert sample.value == value or (value != value and sample.value != sample.value)


def test_a_name_that_is_no_utf8_is_escaped() -> None:
    metrics = Metrics(node="n")
    metrics.set(table.CAPABILITY, 1, ("pod\udcff",))
    assert b'{feature="pod\\\\xff"} 1\n' in render(metrics, Page.INTERNAL)


def test_wrong_label_values_are_refused() -> None:
    metrics = Metrics(node="n")
    with pytest.raises(ValueError, match="be_suppress_cpu_cores has labels"):
        metrics.set(table.BE_SUPPRESS_CPU_CORES, 1.0)
    with pytest.raises(ValueError, match="capability has labels"):
        metrics.replace(table.CAPABILITY, {("a", "b"): 1.0})
    assert render(metrics, Page.INTERNAL) == b""


def test_replace_forgets_what_went() -> None:
    metrics = Metrics(node="n")
    metrics.replace(table.CAPABILITY, {("a",): 1.0, ("b",): 0.0})
    metrics.replace(table.CAPABILITY, {("b",): 1.0})
    assert render(metrics, Page.INTERNAL).decode().splitlines()[2:] == [
        'koordlet_capability{feature="b"} 1'
    ]


def test_a_decision_publishes_and_takes_back() -> None:
    metrics = Metrics(node="n")
    cpuset = Gauge("be_suppress_cpu_cores", 2.0, (("type", "cpuset"),))
    quota = Gauge("be_suppress_cpu_cores", 1.5, (("type", "cfsQuota"),))
    metrics.publish("cpu-suppress", (cpuset, Gauge("be_suppress_be_used_cpu_cores", 1.0)))
    metrics.publish("cpu-suppress", (quota,))
    text = render(metrics, Page.INTERNAL).decode()
    assert 'koordlet_be_suppress_cpu_cores{node="n",type="cfsQuota"} 1.5\n' in text
    assert 'type="cpuset"' not in text
    assert "be_used" not in text
    with pytest.raises(ValueError, match="not in the table"):
        metrics.publish("cpu-suppress", (Gauge("no_such_gauge", 1.0),))
    with pytest.raises(ValueError, match="not in the table"):
        metrics.publish("cpu-suppress", (Gauge("be_suppress_cpu_cores", 1.0),))
    assert render(metrics, Page.INTERNAL).decode() == text
