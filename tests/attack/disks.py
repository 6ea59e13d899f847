"""Disks under the directory of the daemon's state: full, read-only, or refusing a call now and
then. The daemon goes on, says so, and what it wrote meanwhile goes back all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.attack import tracer
from tests.attack.attack import Attack, Trial
from tests.attack.stage import Stage, kill, stage
from tests.daemon.child import until, why_not

READY = "event=ready"
REFUSED = "paths.state_dir: directory"
ENDS_S = 120.0
SIZE = "4m"
ERRORS = ("ENOSPC", "EROFS", "EIO", "EDQUOT")
CALLS = ("pwrite64", "write", "rename", "ftruncate", "fsync", "openat")
FILES = ("journal", "journal.new", "journal.anchor", "reported-nri", "reported-nri.new", "pauses")


def play(trial: Trial) -> None:
    with stage(trial.directory) as made, _disk(made.child.state) as disk:
        before = made.values()
        for _ in trial.cycles:
            made.configure(trial.chance)
            harm = trial.chance.choice((_full, _read_only, _failing))
            harm(made, trial, disk)
            disk.mend()
            made.restore(before, trial.counts)


class Disk:
    """A file system in memory. ``filler`` holds what is free."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.filler = directory / "filler"

    def fill(self) -> None:
        with self.filler.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12):
                try:
                    while file.write(b"x" * size) == size:
                        pass
                except OSError:
                    continue

    def read_only(self) -> None:
        assert _mount("-o", "remount,ro", str(self.directory))

    def mend(self) -> None:
        _mount("-o", "remount,rw", str(self.directory))
        self.filler.unlink(missing_ok=True)


def _full(made: Stage, trial: Trial, disk: Disk) -> None:
    """It fills up while the daemon works, which takes another policy then, and ends in order or
    not."""
    starts = made.child.log().count(READY)
    daemon = made.start()
    try:
        # Before that a SIGHUP would end it.
        until(lambda: made.child.log().count(READY) > starts, "it is ready", ENDS_S)
        time.sleep(trial.chance.uniform(0.0, 3.0))
        disk.fill()
        made.configure(trial.chance)
        daemon.send_signal(signal.SIGHUP)
        time.sleep(trial.chance.uniform(1.0, 3.0))
        assert daemon.poll() is None, made.log()
        if trial.chance.random() < 0.5:
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(ENDS_S) == 0, made.log()
    finally:
        kill(daemon)
    trial.counts["full disks"] += 1


def _read_only(made: Stage, trial: Trial, disk: Disk) -> None:
    """A daemon that runs holds files open for writing, which keeps the kernel from it. A start is
    refused with the key: without a journal nothing could go back."""
    disk.read_only()
    refusals = made.child.log().count(REFUSED)
    daemon = made.start()
    try:
        assert daemon.wait(ENDS_S) not in (0, -signal.SIGKILL), made.log()
    finally:
        kill(daemon)
    assert made.child.log().count(REFUSED) > refusals, made.log()
    trial.counts["read-only disks"] += 1


def _failing(made: Stage, trial: Trial, disk: Disk) -> None:
    """Calls on its files fail, one or several in a row."""
    call, error = trial.chance.choice(CALLS), trial.chance.choice(ERRORS)
    paths = [str(made.child.state / name) for name in FILES]
    first, times = trial.chance.randint(1, 12), trial.chance.choice((1, 1, 3, 1000))
    daemon = made.start(*tracer.failing(call, error, first, times, paths))
    try:
        time.sleep(trial.chance.uniform(2.0, 5.0))
    finally:
        kill(daemon)
    trial.counts[f"failing disks, {call}"] += 1


@contextmanager
def _disk(directory: Path) -> Iterator[Disk]:
    directory.mkdir()
    assert _mount("-t", "tmpfs", "-o", f"size={SIZE},mode=0750", "koordlet-attack", str(directory))
    try:
        yield Disk(directory)
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def _mount(*arguments: str) -> bool:
    done = subprocess.run(["mount", *arguments], check=False, capture_output=True)
    return done.returncode == 0


def _lacks() -> str:
    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory() as directory:
            if not _mount("-t", "tmpfs", "koordlet-attack", directory):
                return "no file system can be mounted here"
            subprocess.run(["umount", directory], check=True)
    return why_not() or tracer.lacks()


ATTACK = Attack("disks", play, _lacks)
