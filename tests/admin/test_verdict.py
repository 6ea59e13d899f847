"""The state of a daemon in one line."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koordlet.admin.cluster import ClusterView
from koordlet.admin.model.nri import NriView
from koordlet.admin.model.status import (
    CollectorView,
    ConfigState,
    ConflictView,
    DecisionLogView,
    JournalView,
    Mode,
    ProblemView,
    RefusedInputView,
    SourceView,
    StatusView,
    TsdbView,
    VerdictState,
)
from koordlet.admin.undo import PauseView
from koordlet.admin.verdict import STARTING_S, verdict
from tests.admin.fake_daemon import FakeDaemon
from tests.admin.samples import START

State = VerdictState
LATER = 10 * STARTING_S
ALL = PauseView(scope="all", since=START, by="root (pid 7)", reason="disk swap")
NIGHT = PauseView(scope="owner", name="cpu-qos", since=START, until=START + 60, by="root (pid 7)")


def well(**differs: Any) -> StatusView:
    """A daemon that is well, but for what ``differs``."""
    found: dict[str, Any] = {
        "ready": True,
        "not_ready": (),
        "uptime_s": LATER,
        "config": ConfigState(file="f", in_force_since=START),
        "tsdb": TsdbView(),
        "decision_log": DecisionLogView(),
        "journal": JournalView(),
        "nri": NriView(enabled=False),
        "cluster": ClusterView(),
        **dict.fromkeys(("endpoints", "sources", "collectors", "conflicts", "pauses"), ()),
        **dict.fromkeys(("refused_inputs", "problems", "armed", "ended", "waiting"), ()),
    }
    return msgspec.structs.replace(FakeDaemon().status(), **{**found, **differs})


def conflict(until: float) -> ConflictView:
    return ConflictView(
        cgroup="a", resource="b", path="/a/b", expected="1", found="2", backing_off_until=until
    )


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize(
    ("differs", "state", "line"),
    [
        ({}, State.OK, "ok"),
        (
            {"refused_inputs": (RefusedInputView(subject="s", path="p", message="m"),)},
            State.OK,
            "ok; 1 refused input",
        ),
        (
            {"cluster": ClusterView(enabled=True, error="no answer in time")},
            State.DEGRADED,
            "degraded: the API server is not heard: no answer in time",
        ),
        (
            {"cluster": ClusterView(enabled=True, error="starts"), "uptime_s": 1.0},
            State.OK,
            "ok",
        ),
        ({"cluster": ClusterView(enabled=True, connected=True)}, State.OK, "ok"),
        (
            {"mode": Mode.OBSERVE},
            State.OBSERVING,
            "observing: nothing is written (daemon.mode or --observe)",
        ),
        (
            {"ready": False, "not_ready": ("no tick has ended yet",), "uptime_s": 1.0},
            State.STARTING,
            "starting: no tick has ended yet",
        ),
        (
            {"ready": False, "not_ready": ("source cri has not listed yet",)},
            State.DEGRADED,
            "degraded: not ready: source cri has not listed yet",
        ),
        (
            {"problems": (ProblemView(part="tick", why="RuntimeError: x"),)},
            State.DEGRADED,
            "degraded: 1 problem: tick: RuntimeError: x",
        ),
        (
            {"problems": tuple(ProblemView(part=f"p{n}", why="w") for n in range(5))},
            State.DEGRADED,
            "degraded: 5 problems: p0: w; p1: w; p2: w (and 2 more)",
        ),
        (
            {"conflicts": (conflict(START + LATER + 9),)},
            State.DEGRADED,
            "degraded: 1 conflict with another writer: /a/b",
        ),
        ({"conflicts": (conflict(START + LATER),)}, State.OK, "ok"),
        (
            {"nri": NriView(enabled=True, phase="backing-off", last_error="EOF")},
            State.DEGRADED,
            "degraded: NRI not connected (backing-off): EOF",
        ),
        (
            {"nri": NriView(enabled=True, phase="connecting"), "uptime_s": 1.0},
            State.OK,
            "ok",
        ),
        (
            {"pauses": (ALL,)},
            State.PAUSED,
            "paused by root (pid 7) since 2027-01-15 08:00:00: disk swap",
        ),
        (
            {"pauses": (NIGHT, ALL)},
            State.PAUSED,
            "paused by root (pid 7) since 2027-01-15 08:00:00: disk swap",
        ),
        (
            {"pauses": (NIGHT,)},
            State.PAUSED,
            (
                "paused in part: cpu-qos by root (pid 7) since 2027-01-15 08:00:00, "
                "until 2027-01-15 08:01:00"
            ),
        ),
        (
            {
                "pauses": (ALL,),
                "mode": Mode.OBSERVE,
                "tsdb": TsdbView(error="ENOSPC"),
            },
            State.PAUSED,
            (
                "paused by root (pid 7) since 2027-01-15 08:00:00: disk swap; "
                "degraded: the store is in memory only: ENOSPC; "
                "observing: nothing is written (daemon.mode or --observe)"
            ),
        ),
    ],
)
def test_verdict(differs: dict[str, Any], state: State, line: str) -> None:
    found = verdict(well(**differs))
    assert (found.state, found.line) == (state, line)


def test_every_reason_is_listed_and_the_first_ones_are_in_the_line() -> None:
    found = verdict(FakeDaemon().status())
    assert found.state is State.PAUSED
    assert len(found.reasons) == 6
    assert all(reason in found.line for reason in found.reasons[:3])
    assert "(and 3 more); suffering: shop/web-0 waits 69 %" in found.line
    for name in ("topology", "configuration is kept out", "not ready", "metrics", "store"):
        assert any(name in reason for reason in found.reasons), name


@pytest.mark.parametrize(
    ("differs", "text"),
    [
        ({"journal": JournalView(healthy=False, why="ENOSPC")}, "ENOSPC"),
        ({"decision_log": DecisionLogView(error="EROFS")}, "EROFS"),
        ({"sources": (SourceView(name="cri", synced=True, error="refused"),)}, "cri: refused"),
        (
            {"collectors": (CollectorView(name="psi", interval_s=1, success=False, error="E"),)},
            "psi: E",
        ),
    ],
)
def test_each_part_that_does_not_work_is_a_reason(differs: dict[str, Any], text: str) -> None:
    (reason,) = verdict(well(**differs)).reasons
    assert text in reason
