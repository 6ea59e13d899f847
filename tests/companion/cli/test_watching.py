"""Options by which the scheduler watches itself."""

from __future__ import annotations

import argparse

import pytest

from koord_scheduler.cli.watching import WATCHING, watching_of
from koord_scheduler.daemon.scheduler.watching import AuditLimits, MonitorLimits, Watching


def parsed(*words: str) -> Watching:
    parser = argparse.ArgumentParser()
    for each in WATCHING:
        parser.add_argument(*each.names, **each.options)
    return watching_of(parser.parse_args(words))


def test_defaults_are_those_of_the_limits() -> None:
    assert parsed() == Watching()
    assert parsed("--enable-workload-auditor") == Watching(audit=AuditLimits())


def test_limits_are_read() -> None:
    found = parsed(
        "--scheduler-monitor-period=1s",
        "--scheduling-timeout=1m30s",
        "--enable-workload-auditor",
        "--workload-auditor-metric-labels= quota = quota.scheduling.koordinator.sh/name ,team=t,",
        "--workload-auditor-victim-reschedule-duration=1s",
        "--workload-auditor-victim-deletion-duration=2s",
        "--workload-auditor-victim-deleting-retries=0",
        "--workload-auditor-scheduling-event-interval=3m",
    )
    assert found == Watching(
        MonitorLimits(1, 90),
        AuditLimits(1, 2, 0, 180),
        (("quota", "quota.scheduling.koordinator.sh/name"), ("team", "t")),
    )


@pytest.mark.parametrize(
    "option",
    [
        "--scheduler-monitor-period=10",
        "--scheduling-timeout=0s",
        "--workload-auditor-victim-deletion-duration=-1s",
        "--workload-auditor-victim-deleting-retries=-1",
        "--workload-auditor-metric-labels=team",
        "--workload-auditor-metric-labels=team=",
        "--workload-auditor-metric-labels=te-am=x",
        "--workload-auditor-metric-labels=priority=x",
        "--workload-auditor-metric-labels=outcome=x",
        "--workload-auditor-metric-labels=a=x,a=y",
        "--workload-auditor-metric-labels=" + ",".join(f"l{i}=x" for i in range(9)),
    ],
)
def test_what_cannot_be_used_is_named(option: str) -> None:
    name = option.partition("=")[0]
    with pytest.raises(ValueError, match=name):
        parsed(option)
