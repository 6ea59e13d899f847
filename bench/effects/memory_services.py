"""nginx and redis beside ffmpeg and a compiler in a cgroup that is short of memory; cgroup v2.

The cgroup has a limit, so that 192 MiB are the machine. nginx sends files of 48 MiB together out of
the page cache, each seldom; redis holds 24 MiB of values. ffmpeg reads a recording larger than the
machine, cuts it into pieces and writes them, over and over; a compiler writes objects beside it.
Without help the kernel takes what was used least lately, which is nginx's. BE has the least CPU
weight in all arms, so that memory makes the difference.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.effects import batch, services
from bench.effects.client import Latencies
from bench.effects.memory import CONFIG, DIRECTORY, check_protects, drop, fill, io_bytes, until
from bench.effects.memory_load import MIB, PAGE_BYTES
from bench.effects.stage import Stage, in_turn, managed, measure, median, only, stage
from bench.figures import Figure
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

    at: float
    disk_bytes: int
    read_again: int
    reclaimed: Mapping[str, int]
    frames: int
    units: int


@dataclass(frozen=True)
class Seen:
    """``ls_mib``: in use by LS in the end. ``oom_kills``: of LS."""

    latencies: Mapping[str, Latencies]
    before: Counters
    after: Counters
    ls_mib: float
    oom_kills: int

    def per_s(self, counter: Callable[[Counters], int]) -> float:
        return self.more(counter) / (self.after.at - self.before.at)

    def more(self, counter: Callable[[Counters], int]) -> int:
        return counter(self.after) - counter(self.before)


def run(smoke: bool, say: Callable[[str], None], repeat: int | None = None) -> list[Figure]:
    """Raises NotMeasuredError where the kernel has no memory protection, or without the
    programs."""
    usual, seconds = (1, 5.0) if smoke else (5, 20.0)
    with TemporaryDirectory(prefix="koordlet-bench-", dir=DIRECTORY) as directory:
        with stage("ls") as on:
            check_protects(on)
            say("files, and how long nginx works for one")
            data = _make(Path(directory))
            rate = _calibrated_rate(on, data)

        def arm(*, crowded: bool, config: str | None = None) -> Callable[[], Seen]:
            return lambda: _arm(data, rate, seconds, crowded=crowded, config=config)

        arms = {
            "alone": arm(crowded=False),
            "unmanaged": arm(crowded=True),
            "managed": arm(crowded=True, config=only("memory-qos") + CONFIG),
        }
        return [Figure("requests", 2 * rate, "/s"), *_figures(in_turn(arms, repeat or usual, say))]


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


def _arm(data: Data, rate: float, seconds: float, *, crowded: bool, config: str | None) -> Seen:
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
            done = _best_effort(on, data) if crowded else lambda: (0, 0)
            before = _counters(on, done)
            both_s = _WARM_S + seconds
            loads = {"nginx": web.load(rate, both_s), "redis": store.load(rate, both_s, seed=2)}
            seen = measure(on, loads)
            after = _counters(on, done)
            ls_bytes = int(on.cgroups.read(ls, Resource.MEMORY_USAGE))
            events = Path(on.cgroups.path(ls, Resource.MEMORY_LOW)).with_name("memory.events")
            [oom_kills] = flat_keyed(events.read_bytes(), (b"oom_kill",), str(events))
    latencies = {name: found.since(_WARM_S) for name, found in seen.latencies.items()}
    return Seen(latencies, before, after, ls_bytes / MIB, oom_kills)


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
        at=time.monotonic(),
        disk_bytes=sum(io_bytes(pid, "read_bytes") for pid in on.pids("ls")),
        read_again=stat["ls"][0],
        reclaimed={name: pages for name, (_, pages) in stat.items()},
        frames=frames,
        units=units,
    )


def _figures(found: Mapping[str, Sequence[Seen]]) -> list[Figure]:
    def of(arm: str, value: Callable[[Seen], float]) -> float:
        return median(found[arm], value)

    def more(arm: str, counter: Callable[[Counters], int]) -> float:
        return of(arm, lambda seen: seen.more(counter))

    def latency_ms(service: str, share: float, arm: str) -> float:
        return of(arm, lambda seen: seen.latencies[service].quantile_ms(share))

    def frames_per_s(arm: str) -> float:
        return of(arm, lambda seen: seen.per_s(lambda c: c.frames))

    figures = []
    for service in ("nginx", "redis"):
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            alone_ms = latency_ms(service, share, "alone")
            figures.append(Figure(f"{name} of {service} alone", alone_ms, "ms"))
            figures += [
                Figure(f"{name} of {service} {arm} / alone",
                       latency_ms(service, share, arm) / alone_ms, "x")
                for arm in _CROWDED
            ]  # fmt: skip
    mib = PAGE_BYTES / MIB
    for arm in _CROWDED:
        goal = 0.0 if arm == "managed" else None
        figures += [
            Figure(f"LS reads again from disk, {arm}", more(arm, lambda c: c.disk_bytes) / MIB,
                   "MiB", goal),
            Figure(f"pages LS lost and read again, {arm}", more(arm, lambda c: c.read_again), "",
                   goal),
            Figure(f"taken from LS, {arm}", mib * more(arm, lambda c: c.reclaimed["ls"]), "MiB",
                   goal),
            Figure(f"taken from BE, {arm}", mib * more(arm, lambda c: c.reclaimed["be"]), "MiB"),
        ]  # fmt: skip
    figures += [Figure(f"memory of LS {arm}", of(arm, lambda s: s.ls_mib), "MiB") for arm in found]
    oom_kills = max(seen.oom_kills for arm in found.values() for seen in arm)
    return [
        *figures,
        Figure("processes of LS out of memory", oom_kills, "", 0),
        Figure("frames managed / unmanaged", frames_per_s("managed") / frames_per_s("unmanaged"),
               "x"),
        *(Figure(f"translation units, {arm}", of(arm, lambda s: s.per_s(lambda c: c.units)), "/s")
          for arm in _CROWDED),
    ]  # fmt: skip
