"""nginx and redis beside ffmpeg and a compiler in a cgroup that is short of memory; cgroup v2.

The cgroup has a limit, so that 192 MiB are the machine. nginx sends files of 48 MiB together out of
the page cache, each seldom; redis holds 24 MiB of values. ffmpeg reads a recording larger than the
machine, cuts it into pieces and writes them, over and over; a compiler writes objects beside it.
Without help the kernel takes what was used least lately, which is nginx's. BE has the least CPU
weight in all arms, so that memory makes the difference. What is in memory outlives a slice, so
every slice is an arm started anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.effects import batch, services
from bench.effects.memory import (
    ARMS,
    CONFIG,
    DIRECTORY,
    SMOKE,
    USUAL,
    check_protects,
    drop,
    fill,
    io_bytes,
)
from bench.effects.memory_load import MIB, PAGE_BYTES
from bench.effects.slices import (
    ArmSlice,
    Size,
    Watch,
    anew,
    latency_ms,
    latency_ratio,
    mean_value,
    value_ratio,
    waits_figures,
)
from bench.effects.stage import Stage, managed, measure, only, stage, until
from bench.figures import Figure, Measured
from koordlet.decision.resource import Resource
from koordlet.kernel.parse import flat_keyed

MACHINE_MIB = 192
FILES, FILE_BYTES = 192, MIB // 4
KEYS, VALUE_BYTES = 24_576, 1024
_FRAMES = MACHINE_MIB * 3 // 2 * MIB // batch.RAW_FRAME_BYTES
_FUNCTIONS = 4
AMOUNTS = {"ls": 'memory_request = "112Mi"\n', "be": 'memory_limit = "80Mi"\n'}
_LEAST_SHARES = 2
_MAX_RATE = 200.0
# Of the time that requests one after the other would need.
_LS_SHARE = 0.1
# The first requests of a client are slow where its CPU is emulated.
_WARM_S = 2.0
_CROWDED = ("unmanaged", "managed")
_STAT = (b"workingset_refault_file", b"pgsteal")


@dataclass(frozen=True)
class Data:
    """On disk. ``www``: the files that nginx sends; ``pieces``: what BE writes goes there."""

    www: Path
    recording: Path
    pieces: Path


@dataclass(frozen=True)
class Counters:
    """``disk_bytes``: read from disk by LS. ``read_again``: pages of files that were taken from LS
    and that it read again. ``reclaimed``: pages that were taken from each group."""

    disk_bytes: int
    read_again: int
    reclaimed: Mapping[str, int]
    frames: int
    units: int


class MemorySlice(ArmSlice, frozen=True):
    """``latencies_ms``: of nginx. For counters see ``Counters``; ``*_taken``: pages that were taken
    from a group. ``ls_mib``: in use by LS in the end. ``oom_kills``: of LS."""

    redis_ms: tuple[float, ...]
    disk_bytes: int
    read_again: int
    ls_taken: int
    be_taken: int
    frames: int
    units: int
    ls_mib: float
    oom_kills: int


def run(smoke: bool, say: Callable[[str], None], size: Size | None = None) -> Measured:
    """Raises NotMeasuredError where the kernel has no memory protection, or without the
    programs."""
    size = size or (SMOKE if smoke else USUAL)
    with TemporaryDirectory(prefix="koordlet-bench-", dir=DIRECTORY) as directory:
        with stage("ls") as on:
            check_protects(on)
            say("files, and how long nginx works for one")
            data = _make(Path(directory))
            rate = _calibrated_rate(on, data)

        def slice_of(arm: str) -> Callable[[int], MemorySlice]:
            return lambda number: _slice(arm, number, data, rate, size)

        slices = anew({arm: slice_of(arm) for arm in ARMS}, size, say)
    return Measured([Figure("requests", 2 * rate, "/s"), *_figures(slices)], size.seed, slices)


def _make(directory: Path) -> Data:
    data = Data(directory / "www", directory / "recording.yuv", directory / "pieces")
    data.www.mkdir()
    data.pieces.mkdir()
    for number in range(FILES):
        fill(data.www / str(number), FILE_BYTES)
    fill(data.recording, _FRAMES * batch.RAW_FRAME_BYTES)
    return data


def _calibrated_rate(on: Stage, data: Data) -> float:
    """Requests a second that leave the machine to others most of the time, emulated ones too."""
    # Read before the first arm, so that no arm is charged for the programs themselves.
    services.redis(on, "ls", keys=1)
    server = _nginx(on, data)
    server.send_each()
    began = time.monotonic()
    server.send_each()
    return round(min(_LS_SHARE * FILES / (time.monotonic() - began), _MAX_RATE), 1)


def _slice(arm: str, number: int, data: Data, rate: float, size: Size) -> MemorySlice:
    config = only("memory-qos") + CONFIG if arm == "managed" else None
    with stage("ls", "be") as on:
        ls = on.groups["ls"]
        on.cgroups.write(os.path.dirname(ls), Resource.MEMORY_LIMIT, MACHINE_MIB * MIB)
        on.cgroups.write(on.groups["be"], Resource.CPU_SHARES, _LEAST_SHARES)
        for file in (*data.www.iterdir(), data.recording, *data.pieces.iterdir()):
            drop(file)
        qos = {"ls": "LS", "be": "BE"}
        with managed(on.config(qos, config, AMOUNTS) if config is not None else None):
            if config is not None:
                until(lambda: bool(on.cgroups.read(ls, Resource.MEMORY_LOW)), "no memory.low")
            store = services.redis(on, "ls", keys=KEYS, value_bytes=VALUE_BYTES)
            # Nobody has read the files, so their pages are charged to LS.
            web = _nginx(on, data)
            web.send_each()
            done = _best_effort(on, data) if arm != "alone" else lambda: (0, 0)
            both_s = _WARM_S + size.slice_s
            seed = size.seed + 2 * (number // len(ARMS))  # of a round
            loads = {
                "nginx": web.load(rate, both_s, seed=seed),
                "redis": store.load(rate, both_s, seed=seed + 1),
            }
            with closing(Watch(on)) as watch:
                end, before = watch.begin(), _counters(on, done)
                seen = measure(on, loads)
                span, after = end(), _counters(on, done)
            ls_bytes = int(on.cgroups.read(ls, Resource.MEMORY_USAGE))
            events = Path(on.cgroups.path(ls, Resource.MEMORY_LOW)).with_name("memory.events")
            [oom_kills] = flat_keyed(events.read_bytes(), (b"oom_kill",), str(events))
    latencies = {name: found.since(_WARM_S).ms for name, found in seen.latencies.items()}
    return MemorySlice(
        arm=arm,
        number=number,
        seconds=span.used.seconds,
        latencies_ms=tuple(latencies["nginx"]),
        waits=span.waits,
        redis_ms=tuple(latencies["redis"]),
        disk_bytes=after.disk_bytes - before.disk_bytes,
        read_again=after.read_again - before.read_again,
        ls_taken=after.reclaimed["ls"] - before.reclaimed["ls"],
        be_taken=after.reclaimed["be"] - before.reclaimed["be"],
        frames=after.frames - before.frames,
        units=after.units - before.units,
        ls_mib=ls_bytes / MIB,
        oom_kills=oom_kills,
    )


def _nginx(on: Stage, data: Data) -> services.Nginx:
    return services.nginx_files(on, "ls", data.www, FILES, workers=2)


def _best_effort(on: Stage, data: Data) -> Callable[[], tuple[int, int]]:
    """Tells frames and translation units. Returns when BE has read and written as much as the
    machine has memory."""
    video = batch.ffmpeg_pieces(on, "be", data.recording, data.pieces)
    work = batch.compiler(on, "be", jobs=1, functions=_FUNCTIONS, objects=data.pieces)
    filled = MACHINE_MIB * MIB // (2 * batch.RAW_FRAME_BYTES)
    until(lambda: video.frames() > filled, "BE did not fill the memory")
    return lambda: (video.frames(), work.units())


def _counters(on: Stage, done: Callable[[], tuple[int, int]]) -> Counters:
    stat = {
        name: flat_keyed(on.cgroups.read_raw(group, Resource.MEMORY_STAT), _STAT)
        for name, group in on.groups.items()
    }
    frames, units = done()
    return Counters(
        disk_bytes=sum(io_bytes(pid, "read_bytes") for pid in on.pids("ls")),
        read_again=stat["ls"][0],
        reclaimed={name: pages for name, (_, pages) in stat.items()},
        frames=frames,
        units=units,
    )


def _figures(slices: Sequence[MemorySlice]) -> list[Figure]:
    def mean(
        name: str,
        arm: str,
        value: Callable[[MemorySlice], float],
        unit: str,
        goal: float | None = None,
    ) -> Figure:
        return Figure.of(f"{name}, {arm}", mean_value(slices, arm, value), unit, goal)

    by_service = {
        "nginx": slices,
        "redis": [msgspec.structs.replace(each, latencies_ms=each.redis_ms) for each in slices],
    }
    figures = []
    for service, found in by_service.items():
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            alone = latency_ms(found, "alone", share)
            figures.append(Figure.of(f"{name} of {service} alone", alone, "ms"))
            figures += [
                Figure.of(
                    f"{name} of {service} {arm} / alone", latency_ratio(found, arm, share), "x"
                )
                for arm in _CROWDED
            ]
    mib = PAGE_BYTES / MIB
    for arm in _CROWDED:
        goal = 0.0 if arm == "managed" else None
        figures += [
            mean("LS reads again from disk", arm, lambda each: each.disk_bytes / MIB, "MiB", goal),
            mean("pages LS lost and read again", arm, lambda each: each.read_again, "", goal),
            mean("taken from LS", arm, lambda each: mib * each.ls_taken, "MiB", goal),
            mean("taken from BE", arm, lambda each: mib * each.be_taken, "MiB"),
        ]
    figures += [
        Figure.of(f"memory of LS {arm}", mean_value(slices, arm, lambda each: each.ls_mib), "MiB")
        for arm in ARMS
    ]
    frames = value_ratio(slices, "managed", lambda each: each.frames / each.seconds)
    return [
        *figures,
        Figure("processes of LS out of memory", max(each.oom_kills for each in slices), "", 0),
        Figure.of("frames managed / unmanaged", frames, "x"),
        *(
            mean("translation units", arm, lambda each: each.units / each.seconds, "/s")
            for arm in _CROWDED
        ),
        *waits_figures(slices, ARMS),
    ]
