"""The metrics page as Prometheus reads it."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from koord_scheduler.services.http import Address, parse_address
from koord_scheduler.services.metrics import Family, Metrics


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
