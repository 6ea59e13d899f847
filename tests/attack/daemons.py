"""The killer: a real daemon and a real ``koordlet restore`` are killed at random instants and at
chosen system calls, again and again. Then every file is as it was."""

from __future__ import annotations

import subprocess
import time
from collections import Counter

from koordlet.decision.resource import UNLIMITED, Resource
from tests.attack import tracer
from tests.attack.attack import Attack, Trial
from tests.attack.stage import Stage, kill, stage
from tests.daemon.child import until, why_not

LONGEST_S = 4.0
"""After its start the daemon writes for some seconds; then seldom."""
ENDS_S = 120.0


def play(trial: Trial) -> None:
    with stage(trial.directory) as made:
        before = made.values()
        most = _calls(made, trial)
        for _ in trial.cycles:
            made.configure(trial.chance)
            _kill_the_daemon(made, trial, most["run"])
            if made.values() != before:
                trial.counts["kills that left values"] += 1
            if trial.chance.random() < 0.3:
                continue  # the next daemon goes on with what this one left
            if trial.chance.random() < 0.5:
                _kill_the_restore(made, trial, most["restore"])
            made.restore(before, trial.counts)
        made.restore(before, trial.counts)


def _calls(made: Stage, trial: Trial) -> dict[str, Counter[str]]:
    """How often each command makes which call, so that a kill comes at any of them."""
    log = trial.directory / "strace"
    daemon = made.start(*tracer.listing(log))
    try:
        until(lambda: _limited(made), "best effort is limited", ENDS_S)
        time.sleep(1.0)
    finally:
        kill(daemon)
    most = {"run": tracer.most_of_one_thread(log)}
    assert made.spawn("restore", *tracer.listing(log)).wait(ENDS_S) == 0, made.log()
    most["restore"] = tracer.most_of_one_thread(log)
    return most


def _limited(made: Stage) -> bool:
    return made.child.cgroups.read(made.child.be, Resource.CPU_QUOTA_US) != UNLIMITED


def _kill_the_daemon(made: Stage, trial: Trial, most: Counter[str]) -> None:
    if trial.chance.random() < 0.5:
        daemon = made.start()
        time.sleep(trial.chance.uniform(0.0, LONGEST_S))
        assert daemon.poll() is None, made.log()
        kill(daemon)
        trial.counts["kills of a daemon, at an instant"] += 1
    else:
        call, number = _pick(trial, most)
        daemon = made.start(*tracer.killing(call, number))
        if _ended(daemon, LONGEST_S):
            trial.counts[f"kills of a daemon, at {call}"] += 1
        else:
            trial.counts["kills of a daemon, at an instant"] += 1


def _kill_the_restore(made: Stage, trial: Trial, most: Counter[str]) -> None:
    call, number = _pick(trial, most)
    if _ended(made.spawn("restore", *tracer.killing(call, number)), ENDS_S):
        trial.counts[f"kills of a restore, at {call}"] += 1


def _pick(trial: Trial, most: Counter[str]) -> tuple[str, int]:
    call = trial.chance.choice(sorted(most))
    return call, trial.chance.randint(1, most[call])


def _ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    """Whether the call came; else it is killed where it is."""
    try:
        return process.wait(within_s) != 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        kill(process)


ATTACK = Attack("daemons", play, lambda: why_not() or tracer.lacks())
