"""Pods as somebody lists them who may be wrong or away."""

from __future__ import annotations

from pathlib import Path

from koordlet_fakefs import FakeHost

from koordlet.decision.facts import PodFacts
from koordlet.state.listed import AWAITED_S, MOST_PODS, ListedSource
from koordlet.state.reported_file import ReportedFile


class Scene:
    """``alive`` is what runtimes know; ``changes`` counts what readers were told."""

    def __init__(self, file: ReportedFile[PodFacts] | None = None) -> None:
        self.host = FakeHost("v2")
        self.alive: set[str] = set()
        self.changes = 0
        self.source = ListedSource("api", self.host, file)
        self.source.alive = lambda: self.alive
        self.source.start(self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def uids(self) -> list[str]:
        return [pod.uid for pod in self.source.pods()]


def pods(*uids: str, name: str = "") -> list[PodFacts]:
    return [PodFacts(uid, name=name or uid) for uid in uids]


def test_what_is_listed_is_published_in_order_and_once() -> None:
    scene = Scene()
    scene.source.replace(pods("b", "a"))
    assert scene.uids() == ["a", "b"]
    assert scene.changes == 1
    before = scene.source.pods()
    scene.source.replace(pods("a", "b"))
    assert scene.source.pods() is before
    assert scene.changes == 1


def test_who_is_not_listed_stays_as_long_as_he_lives() -> None:
    scene = Scene()
    scene.source.replace(pods("a", "b", "c"))
    scene.alive = {"a"}
    scene.source.replace(pods("c"))
    assert scene.uids() == ["a", "c"]
    assert scene.source.departed == 1
    scene.alive = set()
    scene.source.rescan()
    assert scene.uids() == ["c"]


def test_an_empty_list_takes_nobody_who_lives() -> None:
    scene = Scene()
    scene.alive = {"a", "b"}
    scene.source.replace(pods("a", "b", "pending"))
    scene.source.replace([])
    assert scene.uids() == ["a", "b"]
    scene.source.put(pods("a", name="again"))
    assert scene.source.departed == 1
    scene.alive = set()
    scene.source.drop(["a"])
    assert scene.uids() == []


def test_changes_come_one_by_one() -> None:
    scene = Scene()
    scene.source.replace(pods("a"))
    scene.source.put(pods("a", name="other"))
    assert scene.source.pods()[0].name == "other"
    scene.source.drop(["a", "unknown"])
    assert scene.uids() == []
    assert scene.changes == 3


def test_of_two_with_one_uid_the_first_counts() -> None:
    scene = Scene()
    scene.source.replace([*pods("a", name="first"), *pods("a", name="second")])
    assert scene.source.pods()[0].name == "first"


def test_more_than_can_be_here_are_left_out() -> None:
    scene = Scene()
    scene.source.replace(pods(*map(str, range(MOST_PODS + 5))))
    assert len(scene.source.pods()) == MOST_PODS
    scene.source.put(pods("one more"))
    assert len(scene.source.pods()) == MOST_PODS


def test_nobody_waits_longer_for_it_than_a_while() -> None:
    scene = Scene()
    assert not scene.source.synced
    assert scene.source.tells_labels
    scene.host.advance(AWAITED_S)
    assert scene.source.synced
    assert not scene.source.tells_labels
    scene.source.replace([])
    assert scene.source.tells_labels
    scene.source.error = "no answer in time"
    assert not scene.source.tells_labels
    assert "last known" in scene.source.faults()[0].message


def test_what_was_listed_is_there_after_a_restart(tmp_path: Path) -> None:
    def file(boot: str = "boot-1") -> ReportedFile[PodFacts]:
        return ReportedFile(str(tmp_path / "reported-api"), boot, PodFacts)

    scene = Scene(file())
    scene.source.replace(pods("a", "b", "c"))
    scene.source.drop(["c"])
    scene.source.stop()
    again = Scene(file())
    assert again.uids() == ["a", "b"]
    again.alive = {"a"}
    again.source.rescan()
    assert again.uids() == ["a"]
    assert again.source.pods()[0].as_of == float("inf")
    assert not again.source.synced
    again.source.replace(pods("a"))
    assert again.source.departed == 0
    assert Scene(file("boot-2")).uids() == []


def test_who_is_no_longer_asked_knows_nothing() -> None:
    scene = Scene()
    scene.alive = {"a"}
    scene.source.replace(pods("a"))
    scene.source.clear()
    assert scene.uids() == []
    assert not scene.source.listed
