"""What runtimes told survives kill -9, damage and a full disk costs no more than itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Resources
from koordlet.protocol.qos import KubeQoS
from koordlet.state.reported_file import ReportedFile

POD = PodFacts(
    uid="a",
    cgroup="kubepods/besteffort/poda",
    kube_qos=KubeQoS.BEST_EFFORT,
    labels={"koordinator.sh/qosClass": "BE"},
    as_of=12.5,
    ips=("10.0.0.7",),
    containers=(
        ContainerFacts(
            "containerd://c",
            "kubepods/besteffort/poda/c",
            "main",
            is_sandbox=False,
            resources=Resources(limit_cpu_milli=500),
            requested={Resource.CPU_QUOTA_US: 50_000, Resource.CPUSET_CPUS: "0-1"},
        ),
    ),
)


def saved(path: Path, *pods: PodFacts, boot: str = "boot") -> ReportedFile[PodFacts]:
    file = ReportedFile(str(path), boot, PodFacts)
    file.load()
    file.save({pod.uid: pod for pod in pods}, [pod.uid for pod in pods])
    return file


def loaded(path: Path, boot: str = "boot") -> tuple[PodFacts, ...]:
    file = ReportedFile(str(path), boot, PodFacts)
    found = file.load()
    file.close()
    return found


def test_everything_comes_back(tmp_path: Path) -> None:
    saved(tmp_path / "told", POD)  # never closed: as after kill -9
    assert loaded(tmp_path / "told") == (POD,)
    assert loaded(tmp_path / "told") == (POD,), "loading keeps it"


def test_what_went_is_gone_and_what_changed_is_new(tmp_path: Path) -> None:
    other = PodFacts(uid="b")
    file = saved(tmp_path / "told", POD, other)
    changed = PodFacts(uid="b", name="later")
    file.save({"b": changed}, ["a", "b"])
    assert loaded(tmp_path / "told") == (changed,)


def test_another_boot_knows_nothing(tmp_path: Path) -> None:
    saved(tmp_path / "told", POD)
    assert loaded(tmp_path / "told", boot="later") == ()
    assert loaded(tmp_path / "told") == (), "what another boot began is its own"


def test_a_torn_line_costs_itself(tmp_path: Path) -> None:
    path = tmp_path / "told"
    saved(path, POD, PodFacts(uid="b"))
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    assert loaded(path) == (POD,)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 2000))
def test_any_damage(tmp_path_factory: pytest.TempPathFactory, noise: bytes, where: int) -> None:
    path = tmp_path_factory.mktemp("damage") / "told"
    saved(path, POD)
    data = path.read_bytes()
    path.write_bytes(data[:where] + noise + data[where:])
    assert all(isinstance(pod, PodFacts) for pod in loaded(path))
    saved(path, POD)
    assert loaded(path) == (POD,)


def test_it_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "told"
    file = saved(path)
    for number in range(5000):
        pod = PodFacts(uid=str(number % 7), name=str(number))
        file.save({pod.uid: pod}, [pod.uid])
    assert path.stat().st_size < 1 << 20
    assert len(loaded(path)) == 7


def test_a_disk_that_refuses_is_told_and_tried_again(tmp_path: Path) -> None:
    directory = tmp_path / "gone"
    file = ReportedFile(str(directory / "told"), "boot", PodFacts)
    assert file.load() == ()
    file.save({"a": POD}, ["a"])
    assert "No such file" in file.error
    os.mkdir(directory)
    file.save({"a": POD, "b": PodFacts(uid="b")}, ["b"])
    assert file.error == ""
    assert {pod.uid for pod in loaded(directory / "told")} == {"a", "b"}


def test_what_a_kill_leaves_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "told"
    states = []

    def look(fd: int, data: bytes, offset: int) -> int:
        done = real(fd, data, offset)
        states.append(path.read_bytes())
        if offset:
            states.append(path.read_bytes()[:-7])  # in the middle of it
        return done

    real = os.pwrite
    file = ReportedFile(str(path), "boot", PodFacts)
    file.load()
    states.append(path.read_bytes())
    monkeypatch.setattr(os, "pwrite", look)
    for number in range(5):
        file.save({"a": PodFacts(uid="a", name=str(number)), "b": POD}, ["a", "b"])
    monkeypatch.undo()
    file.close()
    for state in states:
        path.write_bytes(state)
        again = ReportedFile(str(path), "boot", PodFacts)
        again.load()
        again.close()
        assert not again.damage


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda lines: [], "the beginning is missing"),
        (lambda lines: lines[:-2], "2 lines are missing or damaged"),
        (lambda lines: [*lines[:2], *lines[3:]], "lines are missing or damaged"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "2 lines are"),
        (lambda lines: [*lines, lines[1]], "1 lines are"),
        (lambda lines: [lines[0], lines[1].replace(b"pod", b"pox"), *lines[2:]], "1 lines are"),
        (lambda lines: lines[1:], "the beginning is missing"),
    ],
)
def test_a_file_that_was_cut_or_changed_is_told(
    tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], told: str
) -> None:
    path = tmp_path / "told"
    saved(path, *(PodFacts(uid=each, name=f"pod {each}") for each in "abcd")).close()
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    file = ReportedFile(str(path), "boot", PodFacts)
    file.load()
    file.close()
    assert told in file.damage and str(path) in file.damage
    assert all(pod.name == f"pod {pod.uid}" for pod in loaded(path))


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "told"
    path.write_bytes(b'{"boot_id":"boot"}\n{"pod":{"uid":"a","name":"n"}}\n{"pod":{"uid":"b')
    assert [pod.name for pod in loaded(path)] == ["n"]
    assert [pod.name for pod in loaded(path)] == ["n"], "written anew"
