"""The memory to report by collect policy (docs/reference/metrics.md 5.3), with its fallbacks."""

from __future__ import annotations

import pytest

from koordlet.decision.memory_figures import CollectPolicy, Subject, memory_figure
from tests.qos.build import Metrics

BASIC, HOT, CACHE = CollectPolicy
PREFIX = {Subject.NODE: "node", Subject.POD: "pod", Subject.HOST_APPLICATION: "host_application"}
LABELS = {Subject.NODE: (), Subject.POD: ("uid",), Subject.HOST_APPLICATION: ("nginx",)}
SUFFIX = {
    BASIC: "memory_usage",
    HOT: "memory_with_hot_page_usage",
    CACHE: "memory_usage_with_page_cache",
}
VALUES = {BASIC: 100.0, HOT: 150.0, CACHE: 300.0}
subjects = pytest.mark.parametrize("subject", Subject)


def view(subject: Subject, *policies: CollectPolicy) -> Metrics:
    """Samples of the series that the reference names for these policies."""
    return Metrics(
        {(f"{PREFIX[subject]}_{SUFFIX[p]}", LABELS[subject]): VALUES[p] for p in policies}
    )


def figure(policy: str, subject: Subject, metrics: Metrics) -> tuple[float, str] | None:
    found = memory_figure(metrics, policy, subject, LABELS[subject], window_s=300)
    return (found.reading.value, found.policy) if found is not None else None


@subjects
@pytest.mark.parametrize("policy", CollectPolicy)
def test_each_policy_has_its_series(policy: CollectPolicy, subject: Subject) -> None:
    assert figure(policy, subject, view(subject, *CollectPolicy)) == (VALUES[policy], policy)


@subjects
@pytest.mark.parametrize("policy", [HOT, CACHE, "usageWithColdPageCache", ""])
def test_without_its_samples_and_where_it_is_unknown_usage_counts(
    policy: str, subject: Subject
) -> None:
    """As the reference where nobody measures cold memory; unlike it (D-6) for page cache too."""
    assert figure(policy, subject, view(subject, BASIC)) == (100.0, BASIC)


@subjects
def test_nothing_measured_is_no_zero(subject: Subject) -> None:
    assert figure(HOT, subject, view(subject, CACHE)) is None


def test_the_names_of_the_protocol() -> None:
    assert [str(each) for each in CollectPolicy] == [
        "usageWithoutPageCache",
        "usageWithHotPageCache",
        "usageWithPageCache",
    ]
