"""The metrics page as Prometheus reads it."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from koord_scheduler.services.http import Address, parse_address
from koord_scheduler.services.metrics import (
    MOST_SERIES,
    Family,
    Metrics,
    bound_text,
    exponential,
)


def test_a_page_that_prometheus_can_read() -> None:
    metrics = Metrics()
    count = metrics.counter("slo_controller_x_count", 'Work "done"\nhere.', "status", "reason")
    count[("failed", 'a "b"\\c\nd')] += 2
    count[("succeeded", "")] += 1
    metrics.add(Family("leader", "gauge", "Leads.", (), lambda: [((), 0.5)], internal=False))
    families = {each.name: each for each in text_string_to_metric_families(metrics.page())}
    samples = {
        (s.labels["status"], s.labels["reason"]): s.value
        for s in families["slo_controller_x_count"].samples
    }
    assert samples == {("failed", 'a "b"\\c\nd'): 2.0, ("succeeded", ""): 1.0}
    assert families["leader"].samples[0].value == 0.5
    assert "slo_controller_x_count{" in metrics.page(internal=True)
    assert "leader" not in metrics.page(internal=True)
    assert "slo_controller" not in metrics.page(internal=False)
    assert Metrics().page() == ""


def test_a_histogram_that_prometheus_can_read() -> None:
    metrics = Metrics()
    made = metrics.histogram("took_seconds", "Time.", (1, 2.5), "result")
    for value in (0.5, 1, 2, 9):
        made.observe(value, "ok")
    (family,) = text_string_to_metric_families(metrics.page())
    assert family.type == "histogram"
    found = {(s.name, s.labels.get("le", "")): s.value for s in family.samples}
    assert all(s.labels["result"] == "ok" for s in family.samples)
    assert found == {
        ("took_seconds_bucket", "1"): 2,
        ("took_seconds_bucket", "2.5"): 3,
        ("took_seconds_bucket", "+Inf"): 4,
        ("took_seconds_sum", ""): 12.5,
        ("took_seconds_count", ""): 4,
    }


def test_a_histogram_without_labels_is_there_from_the_start_and_one_with_labels_is_bounded() -> (
    None
):
    metrics = Metrics()
    metrics.histogram("a", "A.", (1,))
    made = metrics.histogram("b", "B.", (1,), "job")
    assert 'a_bucket{le="1"} 0' in metrics.page()
    for i in range(MOST_SERIES):
        made.observe(1, f"job-{i}")
    made.observe(1, "job-0")
    made.observe(1, "job-new")
    page = metrics.page()
    assert page.count("b_count{") == MOST_SERIES
    assert 'b_count{job="job-0"} 2' in page and 'b_count{job="job-new"} 1' in page
    assert 'job-1"' not in page


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (1, "1"),
        (0.00001, "1e-05"),
        (0.0001, "0.0001"),
        (0.00128, "0.00128"),
        (524288.0, "524288"),
        (2.0**23, "8.388608e+06"),
        (1e6, "1e+06"),
    ],
)
def test_bounds_are_written_as_go_writes_them(bound: float, text: str) -> None:
    assert bound_text(bound) == text
    assert exponential(bound, 2, 2) == (bound, bound * 2)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", Address("", 8080)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("[::1]:80", Address("::1", 80)),
        ("0", None),
        ("", None),
    ],
)
def test_addresses(text: str, address: Address | None) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["8080", "localhost", "a:b", ":70000", ":-1", ":８"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        parse_address(text)
