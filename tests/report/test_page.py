"""The metrics page: golden file, validity by the library's parsers and promtool, the table."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from koordlet.decision.family import Family, Kind, Page
from koordlet.decision.names import encodable
from koordlet.decision.plan import Gauge
from koordlet.qos.cpu_suppress.strategy import BE_CPU_CORES
from koordlet.report import metrics as table
from koordlet.report.metrics import FAMILIES
from koordlet.report.page import _ENCODERS, SAMPLES_AT_ONCE, Catalogue, Format, chosen, render
from koordlet.report.registry import Metrics
from tests.promtool import find_promtool

GOLDEN = Path(__file__).parent / "golden" / "metrics.txt"
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
HEAD = (b"# HELP ", b"# TYPE ")
ANY_TEXT = st.text(st.characters(exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"))


def text(metrics: Metrics, *pages: Page) -> bytes:
    return b"".join(render(metrics, Format.TEXT, *pages))


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
    found = text(_full(), Page.INTERNAL, Page.EXTERNAL)
    if os.environ.get("KOORDLET_UPDATE_GOLDEN"):
        GOLDEN.write_bytes(found)
    assert found.decode() == GOLDEN.read_text()


def test_the_client_librarys_parser_reads_the_page() -> None:
    page = text(_full(), Page.INTERNAL, Page.EXTERNAL).decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert set(families) == {f"koordlet_{name}".removesuffix("_total") for name in FAMILIES}
    assert families["koordlet_decisions"].samples[0].name == "koordlet_decisions_total"
    assert families["koordlet_decisions"].type == "counter"
    assert families["koordlet_pod_eviction"].samples[0].name == "koordlet_pod_eviction"
    assert "# TYPE koordlet_pod_eviction untyped\n" in page
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


def _series(families: Iterable[Metric]) -> dict[tuple[str, tuple[tuple[str, str], ...]], str]:
    """As text, so that NaN equals NaN."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): repr(sample.value)
        for family in families
        for sample in family.samples
    }


def test_openmetrics_has_the_same_series() -> None:
    metrics = _full()
    page = b"".join(render(metrics, Format.OPENMETRICS, Page.INTERNAL, Page.EXTERNAL)).decode()
    families = list(openmetrics_families(page))
    assert page.endswith("\n# EOF\n") and page.count("# EOF") == 1
    plain = text(metrics, Page.INTERNAL, Page.EXTERNAL).decode()
    assert _series(families) == _series(text_string_to_metric_families(plain))
    kinds = {family.name: family.type for family in families}
    assert kinds["koordlet_decisions"] == "counter"
    assert kinds["koordlet_pod_eviction"] == "unknown"


@pytest.mark.parametrize("form", Format)
def test_a_page_comes_in_pieces_that_are_one_page(form: Format) -> None:
    metrics = Metrics(node="n")
    count = 3 * SAMPLES_AT_ONCE + 1
    metrics.replace(table.CAPABILITY, {(f"{number:04}",): number for number in range(count)})
    for number in range(SAMPLES_AT_ONCE):
        metrics.observe(table.NRI_HANDLER_DURATION, 0.001, (f"{number:04}",))
    pieces = list(render(metrics, form, Page.INTERNAL))
    assert max(piece.count(b"\n") for piece in pieces) <= SAMPLES_AT_ONCE + len(HEAD)
    page = b"".join(pieces)
    for line in HEAD:
        assert page.count(line + b"koordlet_capability ") == 1
        assert page.count(line + b"koordlet_nri_handler_duration_seconds ") == 1
    whole = _ENCODERS[form](Catalogue(metrics, (Page.INTERNAL,)))
    read = openmetrics_families if form is Format.OPENMETRICS else text_string_to_metric_families
    assert [line for line in page.splitlines() if not line.startswith(b"#")] == [
        line for line in whole.splitlines() if not line.startswith(b"#")
    ]
    assert len(_series(read(page.decode()))) == count + SAMPLES_AT_ONCE * 11


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", Format.TEXT),
        ("*/*", Format.TEXT),
        ("text/plain;version=0.0.4", Format.TEXT),
        ("text/plain;version=1.0.0;escaping=allow-utf-8", Format.TEXT),
        (
            PROMETHEUS_2,
            Format.OPENMETRICS,
        ),
        (
            PROMETHEUS_3,
            Format.OPENMETRICS,
        ),
        ("application/openmetrics-text;version=0.0.1", Format.TEXT),
        # The library raises.
        ("application/openmetrics-text;version=x", Format.TEXT),
        ("text/plain;version=" + "9" * 8000, Format.TEXT),
        # It would answer with this very version.
        ("application/openmetrics-text;version=1.1.x\nSet-Cookie: a", Format.OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0;escaping=dots", Format.OPENMETRICS),
    ],
)
def test_what_a_scraper_accepts_chooses_the_format(accept: str, form: Format) -> None:
    assert chosen(accept) is form


def test_promtool_has_nothing_to_say_about_our_names() -> None:
    """Nor about the reference's, but for those whose unit is no base unit."""
    promtool = find_promtool()
    page = text(_full(), Page.INTERNAL, Page.EXTERNAL)
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True)
    abbreviated = "metric names should not contain abbreviated units"
    base = 'use base unit "seconds" instead of "milliseconds"'
    assert (done.stderr + done.stdout).decode().splitlines() == [
        f"koordlet_container_scaled_cfs_burst_us {abbreviated}",
        f"koordlet_container_scaled_cfs_quota_us {abbreviated}",
        f"koordlet_resource_update_duration_milliseconds {base}",
        f"koordlet_runtime_hook_invoked_duration_milliseconds {base}",
    ]


def test_pages_split_as_in_the_reference() -> None:
    internal = text(_full(), Page.INTERNAL)
    external = text(_full(), Page.EXTERNAL)
    assert internal + external == text(_full(), Page.INTERNAL, Page.EXTERNAL)
    assert b"koordlet_pod_psi" in external
    assert b"koordlet_pod_psi" not in internal
    assert b"koordlet_node_used_cpu_cores" in internal
    assert b"koordlet_node_used_cpu_cores" not in external


@given(ANY_TEXT, st.floats())
def test_any_label_and_value_parses_back(label: str, value: float) -> None:
    metrics = Metrics(node="n")
    metrics.set(table.CAPABILITY, value, (label,))
    (family,) = text_string_to_metric_families(text(metrics, Page.INTERNAL).decode())
    (sample,) = family.samples
    assert sample.labels == {"feature": encodable(label)}
    assert sample.value == value or (value != value and sample.value != sample.value)


def test_a_name_that_is_no_utf8_is_escaped() -> None:
    metrics = Metrics(node="n")
    metrics.set(table.CAPABILITY, 1, ("pod\udcff",))
    assert b'{feature="pod\\\\xff"} 1.0\n' in text(metrics, Page.INTERNAL)


def test_wrong_label_values_are_refused() -> None:
    metrics = Metrics(node="n")
    with pytest.raises(ValueError, match="be_suppress_cpu_cores has labels"):
        metrics.set(BE_CPU_CORES, 1.0)
    with pytest.raises(ValueError, match="capability has labels"):
        metrics.replace(table.CAPABILITY, {("a", "b"): 1.0})
    assert text(metrics, Page.INTERNAL) == b""


def test_replace_forgets_what_went() -> None:
    metrics = Metrics(node="n")
    metrics.replace(table.CAPABILITY, {("a",): 1.0, ("b",): 0.0})
    metrics.replace(table.CAPABILITY, {("b",): 1.0})
    assert text(metrics, Page.INTERNAL).decode().splitlines()[2:] == [
        'koordlet_capability{feature="b"} 1.0'
    ]


def test_a_decision_publishes_and_takes_back() -> None:
    metrics = Metrics(node="n")
    cpuset = Gauge(BE_CPU_CORES, 2.0, ("cpuset",))
    quota = Gauge(BE_CPU_CORES, 1.5, ("cfsQuota",))
    metrics.publish("cpu-suppress", (cpuset, Gauge(table.BE_SUPPRESS_BE_USED_CPU_CORES, 1.0)))
    metrics.publish("cpu-suppress", (quota,))
    page = text(metrics, Page.INTERNAL).decode()
    assert 'koordlet_be_suppress_cpu_cores{node="n",type="cfsQuota"} 1.5\n' in page
    assert 'type="cpuset"' not in page
    assert "be_used" not in page
    own = Family("no_such_gauge", Kind.GAUGE, "of somebody else")
    with pytest.raises(ValueError, match="no_such_gauge, which it does not declare"):
        metrics.publish("cpu-suppress", (Gauge(own, 1.0),))
    with pytest.raises(ValueError, match="be_suppress_cpu_cores has labels"):
        metrics.publish("cpu-suppress", (Gauge(BE_CPU_CORES, 1.0),))
    metrics.declare((own,))
    metrics.publish("another", (Gauge(own, 3.0),))
    assert "koordlet_no_such_gauge 3.0" in text(metrics, Page.INTERNAL).decode()
    metrics.publish("another", ())
    assert text(metrics, Page.INTERNAL).decode() == page
