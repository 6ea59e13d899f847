"""What was recorded is decided again, and any difference is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from koordlet.decision.plan import Decision
from koordlet.decision.snapshot import WakeKind
from koordlet.inputs import frame
from koordlet.inputs.model import Changes, Minute
from koordlet.inputs.reader import log_files, minutes
from koordlet.qos import STRATEGIES
from koordlet.replay.player import Player
from koordlet.replay.verify import Lack, Verified, verify
from koordlet.tsdb.files import DiskFiles
from tests.replay.conftest import Recorded, trace_of

ALWAYS = 0.0, 1e12
Copy = Callable[[], Path]


def check(state: Path, span: tuple[float, float] = ALWAYS) -> Verified:
    return verify(trace_of(state), *span)


def test_every_decision_is_made_again(soak: Recorded) -> None:
    """Not their digests alone: reasons, gauges and memories are equal too."""
    player, again = Player(), []
    wakes: Counter[WakeKind] = Counter()
    for turn in soak.trace.turns(*ALWAYS):
        wakes[turn.snapshot.wake.kind] += 1
        made = player.decide(turn)
        again += [(turn.snapshot.time, name, each.decision) for name, each in made.items()]
        assert not any(each.unknown for each in made.values())
    assert len(again) == len(soak.made) > 2000
    for found, recorded in zip(again, soak.made, strict=True):
        assert found[:2] == recorded[:2]
        assert _lasting(*found[1:]) == _lasting(*recorded[1:])
    # The soak is about something.
    assert wakes[WakeKind.PSI] > 10 and wakes[WakeKind.CHANGE] > 2
    names = {name for _, name, decision in soak.made if decision.plan.settings}
    assert {"cpu-suppress", "cpu-burst", "memory-qos", "cpu-qos", "interference"} <= names
    notes = [
        note.text for _, name, each in soak.made if name == "interference" for note in each.notes
    ]
    assert any("shop waits for a CPU because of application batch" in text for text in notes)
    assert any(decision.plan.evictions for _, _, decision in soak.made)


def _lasting(name: str, decision: Decision | None) -> Decision:
    """With the memory that is kept: the rest is made anew of the same inputs, and the same comes of
    it."""
    assert decision is not None
    strategy = STRATEGIES.get(name)
    if strategy is None:
        return decision
    return msgspec.structs.replace(decision, memory=strategy.lasting(decision.memory))


def test_all_are_the_same(soak: Recorded) -> None:
    found = check(soak.state)
    assert found.ok, found
    assert found.decisions == len(soak.made)
    assert (found.unequal, found.gaps, found.unplayed, found.skipped) == ({}, (), {}, 0)


@pytest.mark.parametrize("share", [0.1, 0.35, 0.6, 0.85])
def test_it_begins_anywhere(soak: Recorded, share: float) -> None:
    """At the last point before where the log has the memories of the strategies."""
    first, last = soak.made[0][0], soak.made[-1][0]
    start = first + share * (last - first)
    found = check(soak.state, (start, start + 20))
    assert found.ok, found
    asked = [made for made in soak.made if start <= made[0] <= start + 20]
    assert found.decisions == len(asked) > 50
    assert found.first is not None and start <= found.first


@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_decides_the_same(soak: Recorded, seed: str) -> None:
    """Whose sets of texts have another order."""
    command = [sys.executable, "-m", "koordlet", "replay", "--verify", "@1600000000.."]
    run = subprocess.run(
        [*command, "--state-dir", str(soak.state)],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"all {len(soak.made):,} decisions are the same" in run.stdout


def test_nothing_is_written(soak: Recorded, copied: Copy) -> None:
    state = copied()
    before = _content(state)
    check(state)
    assert _content(state) == before


def _content(state: Path) -> dict[str, tuple[bytes, int]]:
    files = (each for each in state.rglob("*") if each.is_file())
    return {str(each): (each.read_bytes(), each.stat().st_mtime_ns) for each in files}


# What has been changed is found


def rewrite(state: Path, change: Callable[[Minute], Minute | None]) -> float:
    """Change the first minute for which ``change`` has another one, with valid checksums. Returns
    the time of its first turn."""
    files = DiskFiles(str(state / "inputs"))
    for file in log_files(files, "log"):
        data, changed_s = b"", None
        for header, minute in minutes(files, file):
            other = change(minute) if changed_s is None else None
            if other is not None:
                changed_s = header.first_ms / 1000
            data += frame.pack(other or minute, header.first_ms, header.last_ms)
        if changed_s is not None:
            (state / "inputs" / file.name).write_bytes(data)
            return changed_s
    raise AssertionError("nothing was changed")


def _with_changes(
    minute: Minute, name: str, other: Callable[[Changes], object | None]
) -> Minute | None:
    """Each change of that name in the minute."""
    changed = {}
    for turn, changes in minute.changes.items():
        if getattr(changes, name) in (None, msgspec.UNSET):
            continue
        found = other(changes)
        if found is not None:
            changed[turn] = msgspec.structs.replace(changes, **{name: found})
    if not changed:
        return None
    return msgspec.structs.replace(minute, changes=minute.changes | changed)


def _doubled_quota(changes: Changes) -> object | None:
    answers = changes.answers
    if answers is None or not any(type(a) is int and a >= 1000 for a in answers.found):
        return None
    found = tuple(2 * a if type(a) is int and a >= 1000 else a for a in answers.found)
    return msgspec.structs.replace(answers, found=found)


def _lower_threshold(changes: Changes) -> object | None:
    slo = changes.slo
    assert slo is not msgspec.UNSET and slo is not None
    thresholds = slo.resource_used_threshold_with_be
    assert thresholds is not None
    other = msgspec.structs.replace(thresholds, cpu_suppress_threshold_percent=30)
    return msgspec.structs.replace(slo, resource_used_threshold_with_be=other)


def _without_pods(changes: Changes) -> object | None:
    return tuple(pod for pod in changes.pods or () if not pod.is_best_effort)


def _fewer_cpus(changes: Changes) -> object | None:
    assert changes.node is not None
    topology = changes.node.topology
    fewer = msgspec.structs.replace(topology, cpus=topology.cpus[:2])
    return msgspec.structs.replace(changes.node, topology=fewer)


def _no_application(changes: Changes) -> object | None:
    return () if changes.applications else None


@pytest.mark.parametrize(
    ("name", "other", "part"),
    [
        ("answers", _doubled_quota, "cpu-suppress"),
        ("slo", _lower_threshold, "cpu-suppress"),
        ("pods", _without_pods, "cpu-qos"),
        ("node", _fewer_cpus, "cpu-suppress"),
        ("applications", _no_application, "cpu-suppress"),
    ],
)
def test_a_changed_input_is_found(
    name: str, other: Callable[[Changes], object | None], part: str, copied: Copy
) -> None:
    state = copied()
    changed_s = rewrite(state, lambda minute: _with_changes(minute, name, other))
    found = check(state)
    assert not found.ok
    assert part in found.unequal
    # Another node asks for other samples, which are not there: that explains its differences.
    assert found.differences if name == "node" else found.unexplained
    assert all(each.time >= changed_s for each in found.differences)


def test_a_changed_digest_is_found(copied: Copy) -> None:
    def other(minute: Minute) -> Minute:
        digests = dict(minute.digests)
        values = bytearray(digests["cpu-suppress"].values)
        values[8] ^= 1  # of its third decision in that minute
        replaced = msgspec.structs.replace(digests["cpu-suppress"], values=bytes(values))
        return msgspec.structs.replace(minute, digests={**digests, "cpu-suppress": replaced})

    state = copied()
    rewrite(state, other)
    found = check(state)
    (difference,) = found.differences
    assert (difference.part, difference.lack) == ("cpu-suppress", Lack.NOTHING)
    assert found.unequal == {"cpu-suppress": 1}


def test_a_changed_sample_is_found(copied: Copy) -> None:
    """The store has other checksums; a file of another day has none that are wrong."""
    state = copied()
    segments = sorted((state / "tsdb").glob("full-*.kts"))
    shutil.copy(segments[-1], segments[0])
    found = check(state)
    assert not found.ok
    assert found.differences[0].lack is Lack.SAMPLES


# What is missing is named


def test_without_the_store(copied: Copy) -> None:
    state = copied()
    shutil.rmtree(state / "tsdb")
    found = check(state)
    assert found.unexplained == 0
    assert found.differences[0].lack is Lack.SAMPLES
    assert "no samples of that time" in found.differences[0].why


def test_a_damaged_file_costs_what_follows_in_it(soak: Recorded, copied: Copy) -> None:
    state = copied()
    file = state / "inputs" / "inputs-00000001.kin"
    (log, *_) = log_files(DiskFiles(str(state / "inputs")), str(state / "inputs"))
    second = log.frames[1].offset
    data = bytearray(file.read_bytes())
    data[second + 60] ^= 1
    file.write_bytes(data)
    found = check(state)
    assert not found.unequal
    assert found.decisions < len(soak.made)
    assert found.gaps == (
        f"{file}: byte {second}: checksum of its content; what follows in this file cannot be read",
    )
    assert not found.ok


def test_an_answer_that_was_never_given(copied: Copy) -> None:
    """As if the strategy asked for more now."""

    def other(minute: Minute) -> Minute | None:
        if minute.begin is None:
            return None
        begin = msgspec.structs.replace(minute.begin, owned=())
        return msgspec.structs.replace(
            minute,
            begin=begin,
            changes={
                turn: msgspec.structs.replace(each, answers=None)
                for turn, each in minute.changes.items()
            },
        )

    state = copied()
    rewrite(state, other)
    found = check(state)
    assert {each.lack for each in found.differences[:3]} == {Lack.ANSWER}
    assert "the log does not tell the value of cpu" in found.differences[0].why


def test_a_memory_that_is_not_there(copied: Copy) -> None:
    def other(minute: Minute) -> Minute | None:
        if minute.memories is None or (minute.begin is not None and minute.begin.is_start):
            return None
        return msgspec.structs.replace(minute, memories={"cpu-suppress": b"\xc0"})

    state = copied()
    at = rewrite(state, other)
    found = check(state, (at + 1, at + 30))
    assert found.unexplained == 0
    assert {each.lack for each in found.differences} <= {Lack.MEMORY}


def test_code_of_another_version(copied: Copy) -> None:
    def other(minute: Minute) -> Minute | None:
        if minute.begin is None:
            return None
        changed = _with_changes(minute, "slo", _lower_threshold)
        assert changed is not None
        begin = msgspec.structs.replace(minute.begin, version="0.0.1")
        return msgspec.structs.replace(changed, begin=begin)

    state = copied()
    rewrite(state, other)
    found = check(state)
    assert found.differences[0].lack is Lack.CODE
    assert found.differences[0].why.startswith("koordlet 0.0.1 decided, this is ")


def test_a_part_that_is_not_installed(copied: Copy) -> None:
    def other(minute: Minute) -> Minute | None:
        def renamed(changes: Changes) -> object:
            parts = changes.strategies or ()
            return tuple(
                msgspec.structs.replace(each, name="theirs") if each.name == "cpu-burst" else each
                for each in parts
            )

        changed = _with_changes(minute, "strategies", renamed)
        if changed is None:
            return None
        digests = dict(changed.digests)
        digests["theirs"] = digests.pop("cpu-burst")
        return msgspec.structs.replace(changed, digests=digests)

    state = copied()
    rewrite(state, other)
    found = check(state)
    assert not found.ok
    assert "no installed package offers a part of this name" in found.unplayed["theirs"]
    assert found.skipped
