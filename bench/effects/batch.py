"""The best-effort work of the effect benches: real programs, from ``tools/fetch-services``.

Each function starts one or more in a group of a stage, without end, and returns when something is
done. What is done is counted. Exceptions as in ``services``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.effects.services import READY_TIMEOUT_S, programs, wait
from bench.effects.stage import Running, Stage
from bench.figures import NotMeasuredError
from koordlet.decision.resource import Resource

_RAW = ("-f", "rawvideo", "-video_size", "640x360", "-pix_fmt", "yuv420p")
RAW_FRAME_BYTES = 640 * 360 * 3 // 2
_COMPILE = (
    'n=0; while "$1" -quiet -O2 -g "$2" -o "$3-$n.s"; '
    'do printf . >>"$4"; n=$(((n + 1) % 100)); done'
)


@dataclass(frozen=True)
class Ffmpeg:
    running: tuple[Running, ...]
    progress: tuple[Path, ...]

    def frames(self) -> int:
        """Encoded so far, by all."""
        return sum(_last_frame(file) for file in self.progress)


def ffmpeg(on: Stage, group: str, *, jobs: int, threads: int = 2, size: str = "640x360") -> Ffmpeg:
    """Endless transcodings of a test picture to H.264, ``threads`` encoder threads each."""
    job = (
        *("-f", "lavfi", "-i", f"testsrc2=size={size}:rate=30"),
        *("-c:v", "libx264", "-preset", "medium", "-threads", str(threads)),
        *("-f", "null", "-"),
    )
    return _ffmpeg(on, group, [job] * jobs)


def ffmpeg_pieces(on: Stage, group: str, recording: Path, pieces: Path, wrap: int = 4) -> Ffmpeg:
    """Cuts a file of ``RAW_FRAME_BYTES`` a frame into pieces, again and again: it reads and writes
    as much as memory and disk can take. ``wrap``: the directory gets so many files, each 50
    frames long."""
    job = (
        *("-stream_loop", "-1", *_RAW, "-i", str(recording)),
        *("-c", "copy", "-f", "segment", "-segment_format", "rawvideo"),
        *("-segment_time", "2", "-segment_wrap", str(wrap), str(pieces / "piece-%d.yuv")),
    )
    return _ffmpeg(on, group, [job])


def _ffmpeg(on: Stage, group: str, jobs: Sequence[Sequence[str]]) -> Ffmpeg:
    """Returns when each has its first frame."""
    found = programs()
    running, progress = [], []
    for number, job in enumerate(jobs):
        progress.append(on.directory / f"ffmpeg-{number}.progress")
        command = [
            *(found.path("ffmpeg"), "-nostdin", "-hide_banner", "-loglevel", "error"),
            *("-stats_period", "0.2", "-progress", str(progress[-1])),
            *job,
        ]
        running.append(on.start(f"ffmpeg-{number}", group, command, found.env))
    made = Ffmpeg(tuple(running), tuple(progress))
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not all(_last_frame(file) for file in progress):
        wait(running, deadline, "a first frame")
    return made


def _last_frame(progress: Path) -> int:
    """ffmpeg appends blocks of ``key=value`` lines."""
    try:
        with progress.open("rb") as file:
            file.seek(max(0, progress.stat().st_size - 4096))
            _, found, rest = file.read().rpartition(b"\nframe=")
    except FileNotFoundError:
        return 0
    return int(rest.split(b"\n")[0]) if found and rest else 0


def spinners(on: Stage, group: str, *, count: int) -> Callable[[], int]:
    """Processes that never rest; returns what tells the milliseconds of CPU that they had."""
    command = (sys.executable, "-m", "bench.load", "spin", str(count))
    on.start("spinners", group, command, {"PYTHONPATH": os.getcwd()})
    deadline = time.monotonic() + READY_TIMEOUT_S
    while len(on.pids(group)) <= count:
        on.check()
        if time.monotonic() > deadline:
            raise NotMeasuredError(f"the spinners did not start in {READY_TIMEOUT_S:.0f} s")
        time.sleep(0.02)
    return lambda: int(on.cgroups.read(on.groups[group], Resource.CPUACCT_USAGE)) // 1_000_000


@dataclass(frozen=True)
class Compiler:
    running: tuple[Running, ...]
    done: Path

    def units(self) -> int:
        """Compiled so far, by all."""
        return self.done.stat().st_size


def compiler(
    on: Stage, group: str, *, jobs: int, functions: int = 80, objects: Path | None = None
) -> Compiler:
    """Compiles a generated C file of some 12 lines a function again and again. What came out the
    last hundred times stays in ``objects``, or else in the stage's directory."""
    found = programs()
    source = on.directory / "unit.c"
    source.write_text("\n".join(_c_function(number) for number in range(functions)))
    done = on.directory / "compiled"
    done.touch()
    running = []
    for job in range(jobs):
        made = (objects or on.directory) / f"unit-{job}"
        arguments = (found.path("cc1"), str(source), str(made), str(done))
        command = ["/bin/sh", "-c", _COMPILE, "sh", *arguments]
        running.append(on.start(f"cc1-{job}", group, command, found.env))
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not done.stat().st_size:
        wait(running, deadline, "a first object")
    return Compiler(tuple(running), done)


def _c_function(number: int) -> str:
    return f"""
struct record_{number} {{ int key; double value; struct record_{number} *next; }};
double walk_{number}(struct record_{number} *first, const int *table, int count) {{
  double sum = {number};
  for (struct record_{number} *each = first; each; each = each->next)
    for (int i = 0; i < count; i++)
      switch (table[i] % 7) {{
        case 0: sum += each->value * table[i]; break;
        case 1: sum -= each->key << (i & 7); break;
        case {2 + number % 4}: sum *= 1.0 + each->value / (i + {number % 13 + 1}); break;
        default: if (each->key > i) sum += table[(i * {number % 17 + 3}) % count];
      }}
  return sum;
}}"""
