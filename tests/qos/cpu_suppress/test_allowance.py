"""The formula of docs/reference/qos.md 2.2 with its worked examples."""

from __future__ import annotations

import math

import msgspec
import pytest

from koordlet.decision.why import Why
from koordlet.qos.cpu_suppress.allowance import Allowance, allowance, inputs, sentence
from tests.qos.build import app, be_pod, metrics, node, pod, slo, snapshot


def terms(snap, **fields) -> Allowance:
    found = allowance(snap, slo(**fields).resource_used_threshold_with_be)
    assert isinstance(found, Allowance)
    return found


@pytest.mark.parametrize(
    ("capacity", "minimum", "used", "ls", "be", "ls_app", "be_app", "expected"),
    [
        (20, None, 12, 8, 2, None, None, 4000),
        (20, None, 12, 8, 2, 1, None, 4000),
        (20, None, 12, 8, 2, None, 1, 5000),
        (20, 60, 12, 8, 2, None, None, 12000),
        (16, None, 12, 8, 2, None, None, 1200),
        # The LS pod is not listed: its usage is in the system term.
        (16, None, 12, None, 4, None, None, 3200),
        # Listed, but without a sample: the same.
        (16, None, 12, math.nan, 4, None, None, 3200),
        (20, None, 40, 8, 2, None, None, -24000),
    ],
)
def test_worked_examples(capacity, minimum, used, ls, be, ls_app, be_app, expected) -> None:
    pods = [be_pod("be")] + ([] if ls is None else [pod("ls")])
    samples = {"be": be} | ({} if ls is None else {"ls": ls})
    apps = [app("web", "LS")] * (ls_app is not None) + [app("job", "BE")] * (be_app is not None)
    app_samples = {"web": ls_app} if ls_app is not None else {}
    app_samples |= {"job": be_app} if be_app is not None else {}
    snap = snapshot(
        node(capacity), pods=pods, apps=apps, metrics_=metrics(used, samples, app_samples)
    )
    assert terms(snap, cpu_suppress_min_percent=minimum).milli == expected


def test_reserved_is_the_least_of_the_system_term() -> None:
    machine = node(80, annotation_reserved_milli=8000, reserved_milli=4000)
    snap = snapshot(
        machine,
        pods=[pod("ls"), be_pod("be")],
        apps=[app("web", "LS"), app("job", "BE")],
        metrics_=metrics(80, {"ls": 20, "be": 32}, {"web": 4, "job": 8}),
    )
    found = terms(snap)
    assert (found.pods_ls.milli, found.apps_ls.milli, found.system_cores) == (20000, 4000, 16)
    idle = msgspec.structs.replace(snap, metrics=metrics(2, {"ls": 1, "be": 1}))
    assert terms(idle).system_cores == 8


def test_best_effort_is_the_label_or_the_kube_class() -> None:
    labelled = pod("a", "BE", "Burstable")
    unlabelled = pod("b", None, "BestEffort")
    ls_without_request = pod("c", "LS", "BestEffort")
    mid = pod("d", None, "Burstable")
    snap = snapshot(
        node(16),
        pods=[labelled, unlabelled, ls_without_request, mid],
        metrics_=metrics(4, {"a": 1, "b": 1, "c": 1, "d": 1}),
    )
    found = terms(snap)
    assert (found.pods_be.milli, found.pods_ls.milli) == (3000, 1000)


def test_applications_without_a_class_or_absent() -> None:
    snap = snapshot(
        node(16),
        apps=[app("plain", None), app("gone", "BE", present=False)],
        metrics_=metrics(3, {}, {"plain": 1, "gone": 2}),
    )
    found = terms(snap)
    assert (found.apps_ls.milli, found.apps_be.milli, found.system_cores) == (1000, 0, 2)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0, 1e300])
def test_a_bad_sample_of_a_pod_counts_as_missing(bad: float) -> None:
    snap = snapshot(node(10), pods=[pod("ls")], metrics_=metrics(5, {"ls": bad}))
    found = terms(snap)
    assert found.milli == 7000 - 5000
    assert found.pods_ls.missing == 1
    names = {fact.name: fact.value for fact in inputs(found, 0)}
    assert names["subjects without a sample, counted as system"] == 1


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -0.5])
def test_without_a_node_sample_there_is_no_judgement(bad: float | None) -> None:
    found = allowance(
        snapshot(node(10), metrics_=metrics(bad)), slo().resource_used_threshold_with_be
    )
    assert isinstance(found, Why)
    assert "node_cpu_usage" in found.text


def test_a_sample_older_than_two_intervals_does_not_exist() -> None:
    stale = metrics(5)
    stale.age_s = 2.1
    spec = slo().resource_used_threshold_with_be
    assert isinstance(allowance(snapshot(node(10), metrics_=stale), spec), Why)
    slower = snapshot(node(10), metrics_=stale, collect_interval_s=2.0)
    assert isinstance(allowance(slower, spec), Allowance)


def test_unknown_capacity_is_no_judgement() -> None:
    spec = slo().resource_used_threshold_with_be
    assert isinstance(allowance(snapshot(node(10, capacity_milli=0)), spec), Why)


def test_the_sentence_names_every_term() -> None:
    snap = snapshot(
        node(2),
        pods=[pod("ls")],
        apps=[app("web", "LS")],
        metrics_=metrics(1.0, {"ls": 0.25}, {"web": 0.5}),
    )
    assert sentence(terms(snap, cpu_suppress_threshold_percent=65), 0) == (
        "BE may use 0.30 of 2 cores: 65 % of 2.00 = 1.30, minus LS pods 0.25, "
        "minus LS applications 0.50, minus system 0.25"
    )
    with_floor = terms(snap, cpu_suppress_min_percent=50)
    assert sentence(with_floor, 100).endswith(
        "minus pressure 0.10, raised to the configured minimum 1.00"
    )
    reserved = snapshot(node(2, reserved_milli=500), metrics_=metrics(0.0))
    assert "minus system 0.50 (at least the reserved 0.50)" in sentence(terms(reserved), 0)


def test_the_sentence_of_a_full_node_gives_best_effort_nothing_rather_than_a_negative_amount() -> (
    None
):
    full = snapshot(node(2), pods=[pod("ls")], metrics_=metrics(2.0, {"ls": 1.95}))
    text = sentence(terms(full, cpu_suppress_threshold_percent=65), 0)
    assert text.startswith("BE may use 0.00 of 2 cores: ")
    assert text.endswith(", which is -0.70 and leaves nothing")


def test_inputs_carry_metric_window_age_and_value() -> None:
    snap = snapshot(node(2), pods=[pod("ls")], metrics_=metrics(1.0, {"ls": 0.25}))
    facts = {fact.name: fact for fact in inputs(terms(snap), 120)}
    ls = facts["pod_cpu_usage, 1 LS pods"]
    assert (ls.value, ls.unit, ls.window_s, ls.age_s) == (0.25, "cores", 2.0, 0.2)
    assert facts["node_cpu_usage"].value == 1.0
    assert facts["pressure term"].value == 0.12


def test_work_inside_other_work_is_counted_once() -> None:
    snap = snapshot(
        node(20),
        pods=[be_pod("be"), pod("ls")],
        apps=[
            app("outer", "BE", "batch"),
            app("inner", "BE", "batch/inner"),
            app("web", "LS"),
            app("side", "BE", "web/side"),
            app("silent", "BE", "web/silent"),
            app("agent", "LS", "kubepods/burstable/podls/agent"),
        ],
        metrics_=metrics(
            16, {"be": 2, "ls": 5}, {"outer": 4, "inner": 3, "web": 4, "side": 1, "agent": 2}
        ),
    )
    found = terms(snap)
    assert (found.apps_be.cores, found.apps_ls.cores) == (4 + 1, 3 + 2)
    assert (found.pods_be.cores, found.pods_ls.cores) == (2, 3)
    assert found.apps_be.missing == 1
    assert found.system_cores == 16 - 4 - 4 - 2 - 5


def test_of_a_pod_and_an_application_in_one_cgroup_the_application_counts() -> None:
    snap = snapshot(
        node(20),
        pods=[pod("ls")],
        apps=[app("same", "LS", "kubepods/burstable/podls")],
        metrics_=metrics(8, {"ls": 5}, {"same": 5.5}),
    )
    found = terms(snap)
    assert (found.pods_ls.cores, found.apps_ls.cores, found.system_cores) == (0, 5.5, 2.5)
