"""The status of PodGroups: docs/reference/central.md 3.5."""

from __future__ import annotations

import pytest

from koord_scheduler.share.gang.status import Child, Status, status_of, worth_a_look

NEW = Child("Pending", False, ("a/job",))
BOUND = Child("Pending", True)
RUNNING = Child("Running", True)
DONE = Child("Succeeded", True)
FAILED = Child("Failed", True)
BEGUN = Status("PreScheduling", "a/job")


@pytest.mark.parametrize(
    ("old", "children", "expected"),
    [
        (Status(), (), Status("Pending")),
        (Status("Pending"), (NEW,), Status("Pending")),
        (Status("Pending"), (NEW, NEW), BEGUN),
        (BEGUN, (), BEGUN._replace(phase="Pending")),
        (BEGUN, (NEW, NEW), Status("Scheduling", "a/job", started_s=50.0)),
        (
            Status("Scheduling", "a/job", started_s=9.0),
            (BOUND, NEW),
            Status("Scheduling", "a/job", 1, started_s=9.0),
        ),
        (BEGUN, (BOUND, BOUND), Status("Scheduled", "a/job", 2)),
        (BEGUN, (RUNNING, BOUND), Status("Scheduled", "a/job", 2, 1)),
        (BEGUN, (RUNNING, RUNNING), Status("Running", "a/job", 2, 2)),
        (BEGUN, (RUNNING, DONE), Status("Running", "a/job", 2, 1, 1)),
        (BEGUN, (RUNNING, FAILED), Status("Failed", "a/job", 2, 1, 0, 1)),
        (BEGUN, (FAILED, BOUND), Status("Scheduled", "a/job", 2, 0, 0, 1)),
        (BEGUN, (DONE, DONE, FAILED), Status("Finished", "a/job", 3, 0, 2, 1)),
        (BEGUN, (NEW, DONE, DONE), Status("Finished", "a/job", 2, 0, 2)),
    ],
)
def test_one_step(old: Status, children: tuple[Child, ...], expected: Status) -> None:
    assert status_of(old, 2, children, 50.0) == expected


def test_no_minimum_waits_forever() -> None:
    assert status_of(Status("Pending"), 0, (NEW,), 0.0) == Status("Pending")


@pytest.mark.parametrize(
    ("status", "look"),
    [
        (Status("Finished"), False),
        (Status("Failed"), False),
        (Status("Scheduled", scheduled=2, started_s=1.0), True),
        (Status("Scheduled", scheduled=2, started_s=48 * 3600.0 + 1), False),
        (Status("Scheduled", scheduled=2, running=1, started_s=48 * 3600.0 + 1), True),
        (Status("Scheduled", scheduled=1, started_s=48 * 3600.0 + 1), True),
        (Status("Pending"), True),
    ],
)
def test_which_groups_are_looked_at_in_the_beginning(status: Status, look: bool) -> None:
    assert worth_a_look(status, 2, 0.0) is look
