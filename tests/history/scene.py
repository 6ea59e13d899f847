"""Half an hour of a node with an incident in it, as a daemon would have left it on disk.

From minute 12 on two best-effort pods take the CPU: shop/web-0 waits for a CPU 45, 60 and 30 % of
minutes 12 to 14, and is throttled in half of its periods in minute 13. koordlet lowers the limit of
best-effort work from 3 to 0.8 cores at 13:10 and evicts batch/job-2 at 14:30. In minutes 20 and 21
koordlet does not run. shop/db-0 waits for a disk 15 % of minute 24. Who made whom wait is sampled
each ten seconds, and each second from 12:00 to 13:20; waits for memory are not measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from koordlet.collectors.cold.collector import NODE_COLD_METHOD
from koordlet.decision import memory_figures as m
from koordlet.decision import metrics as k
from koordlet.decision.metrics import (
    HOST_APPLICATION_INFO,
    IDENTITY_REPEAT_S,
    NODE_CPU_CAPACITY,
    NODE_MEMORY_CAPACITY,
    POD_INFO,
    Metric,
)
from koordlet.decision.record import Kind, Record
from koordlet.decision.why import Input, Why
from koordlet.report.decisions import DecisionLog
from koordlet.tsdb.store import Store

START = 1_700_000_400.0  # 2023-11-14 22:20:00 UTC, a multiple of ten minutes
SECONDS = 1800
END = START + SECONDS
WEB, DB = "8f2c1a5e-0000-4000-8000-000000000001", "8f2c1a5e-0000-4000-8000-000000000002"
JOB, JOB2 = "8f2c1a5e-0000-4000-8000-000000000003", "8f2c1a5e-0000-4000-8000-000000000004"
PODS = {
    WEB: ("shop", "web-0", "LS", f"kubepods/burstable/pod{WEB}"),
    DB: ("shop", "db-0", "LSR", f"kubepods/pod{DB}"),
    JOB: ("batch", "job-1", "BE", f"kubepods/besteffort/pod{JOB}"),
    JOB2: ("batch", "job-2", "BE", f"kubepods/besteffort/pod{JOB2}"),
}
EVICTED_S = 14 * 60 + 30
LIMITED_S = 13 * 60 + 10
AWAY = range(20 * 60, 22 * 60)
CLOSE = range(12 * 60, LIMITED_S + 10)
"""When waits are sampled each second."""
CONTAINER = "4f0c" * 16
WAITED = {12: 45.0, 13: 60.0, 14: 30.0}
Sample = tuple[Metric, tuple[str, ...], float]


def make(directory: Path) -> Path:
    """``directory`` as the state directory of a daemon that was killed at the end."""
    fill(Store(str(directory / "tsdb")))
    log = DecisionLog(str(directory / "decisions"))
    log.append(records())
    log.close()
    return directory


def fill(store: Store) -> None:
    ids: dict[tuple[str, tuple[str, ...]], int] = {}
    for second in range(SECONDS):
        if second in AWAY:
            continue
        columns, values = [], []
        for metric, labels, value in samples(second):
            key = metric.kind, labels
            if key not in ids:
                pairs = tuple(zip(metric.labels, labels, strict=True))
                ids[key] = store.series(metric.kind, pairs)
            columns.append(ids[key])
            values.append(value)
        time_ms = int(START + second) * 1000
        store.append(time_ms, columns, values)
        if second % 10 == 9:
            store.maintain(time_ms)
    store.close()


def samples(second: int) -> Iterator[Sample]:
    minute = second // 60
    there = [uid for uid in PODS if uid != JOB2 or second < EVICTED_S]
    if second % IDENTITY_REPEAT_S == 0 or second == AWAY.stop:
        yield NODE_CPU_CAPACITY, ("node-1",), 4.0
        yield NODE_MEMORY_CAPACITY, ("node-1",), float(8 << 30)
        for uid in there:
            yield POD_INFO, (uid, *PODS[uid]), 1.0
        yield HOST_APPLICATION_INFO, ("backup", "BE", "backup.slice"), 1.0
    greedy = minute >= 12 and second < LIMITED_S
    cpu = {WEB: 0.5 if greedy else 1.0, DB: 0.25, JOB: 1.5 if greedy else 0.5, JOB2: 1.0}
    for uid in there:
        yield k.POD_CPU_USAGE, (uid,), cpu[uid]
        yield k.POD_MEMORY_USAGE, (uid,), float(256 << 20)
    yield k.HOST_APPLICATION_CPU_USAGE, ("backup",), 0.125
    be = cpu[JOB] + (cpu[JOB2] if JOB2 in there else 0.0) + 0.125
    system = 0.25
    yield k.NODE_CPU_USAGE, (), cpu[WEB] + cpu[DB] + be + system
    yield k.SYS_CPU_USAGE, (), system
    yield k.NODE_MEMORY_USAGE, (), float(3 << 30)
    yield k.NODE_BE, ("cpu", "usage"), be * 1000
    yield k.NODE_BE, ("cpu", "real-limit"), 800.0 if second >= LIMITED_S else 3000.0
    yield k.POD_CPU_THROTTLED, (WEB,), 0.5 if minute == 13 else 0.0
    if second % 10 == 0:
        yield from _pressure(minute)
        yield from _kept(second)
    if second % 10 == 0 or second in CLOSE:
        yield from _waits(second)


def _kept(second: int) -> Iterator[Sample]:
    """What only ``top --at`` shows."""
    yield k.CONTAINER_PSI_CPU_FULL_SUPPORTED, (WEB, CONTAINER), 1.0
    yield k.CONTAINER_CPU_USAGE, (CONTAINER,), 0.5
    yield k.CONTAINER_MEMORY_USAGE, (CONTAINER,), float(200 << 20)
    yield k.POD_RESCTRL_LLC, (WEB, "0"), float(4 << 20)
    yield k.POD_RESCTRL_LLC, (WEB, "1"), float(2 << 20)
    if second % 60 == 10:
        yield k.CONTAINER_CPI, (WEB, CONTAINER, "cycle"), 5e9
        yield k.CONTAINER_CPI, (WEB, CONTAINER, "instruction"), 4e9
    yield k.POD_GPU_CORE_USAGE, (JOB, "0", "GPU-0"), 25.0
    yield k.POD_GPU_CORE_USAGE, (JOB, "1", "GPU-1"), 50.0
    yield k.POD_GPU_MEMORY_USAGE, (JOB, "0", "GPU-0"), float(1 << 30)
    yield NODE_COLD_METHOD, ("mglru",), 1.0
    yield m.NODE_MEMORY_COLD_PAGE_SIZE, (), float(1 << 30)
    yield m.POD_MEMORY_COLD_PAGE_SIZE, (JOB,), float(64 << 20)


def _waits(second: int) -> Iterator[Sample]:
    """From 12:00 to 13:10, 70 s: shop/web-0 waits 300 ms a second because of batch/job-1, 150 of
    batch/job-2, 20 of its own tasks and 10 of the system; else 10 because of its own tasks. In
    minute 24, shop/db-0 waits 100 ms a second for the disk of batch/job-1 and 50 for its own."""
    is_bad = second in range(12 * 60 + 1, LIMITED_S + 1)
    cpu = {("", "self"): 20.0 if is_bad else 10.0}
    if second in range(12 * 60 + 1, LIMITED_S + 60):
        cpu |= {
            (JOB, "pod"): 300.0 * is_bad,
            (JOB2, "pod"): 150.0 * is_bad,
            ("/", "system"): 10.0 * is_bad,
        }
    disk = {}
    if second in range(24 * 60 + 1, 26 * 60):
        is_slow = second <= 25 * 60
        disk = {(JOB, "pod"): 100.0 * is_slow, ("", "self"): 50.0 * is_slow}
    for metrics, victim, cells in ((k.CPU_WAIT, WEB, cpu), (k.IO_WAIT, DB, disk)):
        for culprit, value in cells.items():
            yield metrics.pod, (victim, *culprit), value
        yield metrics.pod_total, (victim,), sum(cells.values())
    yield k.CPU_WAIT.app_total, ("backup",), 0.0


def _pressure(minute: int) -> Iterator[Sample]:
    waited = WAITED.get(minute, 2.0)
    for uid, cpu, io in (
        (WEB, waited, 0.0),
        (DB, 1.0, 15.0 if minute == 24 else 0.0),
        (JOB, 50.0, 0.0),
    ):
        for resource, value in (("cpu", cpu), ("mem", 0.0), ("io", io)):
            yield k.POD_PSI, (uid, resource, "10", "some"), value
            yield k.POD_PSI, (uid, resource, "10", "full"), 0.0
    for resource, value in (("cpu", waited / 2), ("mem", 0.0), ("io", 0.5)):
        yield k.NODE_PSI, (resource, "10", "some"), value


def records() -> Iterator[Record]:
    """In order of time, as the log has them."""

    def at(second: float, kind: Kind, owner: str, why: Why, **fields: object) -> Record:
        return Record(START + second, kind, owner, why, **fields)  # type: ignore[arg-type]

    def told(rule: str, text: str) -> Why:
        return Why(rule, text)

    yield at(1, Kind.LIFECYCLE, "koordlet", told("lifecycle", "koordlet 0.1.0 started"))
    waits = told("alarm.psi", "tasks had to wait for a CPU")
    yield at(722, Kind.ALARM, "alarms", waits, cgroup=PODS[WEB][3])
    yield at(723, Kind.ALARM, "alarms", waits, cgroup="/")
    yield at(785, Kind.ALARM, "alarms", waits, cgroup=PODS[WEB][3])
    before: int | str = -1
    for number in range(5):
        quota = 300_000 if not number else 80_000 + 1000 * number
        text = f"BE may use {quota / 100_000:g} cores: 65 % of 4 cores minus what others use."
        why = Why("cpu-suppress.quota", text, (Input("node_cpu_usage", 3.5, "cores"),))
        yield at(
            2 if not number else LIMITED_S + number, Kind.WRITE, "cpu-suppress", why,
            cgroup="kubepods/besteffort", resource="cpu.cfs_quota_us", previous=before,
            wanted=quota, result="written", wake="tick",
        )  # fmt: skip
        before = quota
    for number, (name, uid) in enumerate((("batch/job-1", JOB), ("batch/job-2", JOB2))):
        text = (
            f"shop/web-0 waits for a CPU because of {name}; with act = true it would be held back"
        )
        why = Why(f"interference.cpu.{WEB}.{uid}", text, (Input("blame", 0.4, "of its demand"),))
        yield at(LIMITED_S + 5 + number, Kind.NOTE, "interference", why, wake="tick")
    text = (
        "shop/db-0 needs more cycles for each instruction while batch/job-1 is busy; with act = "
        "true it would be held back"
    )
    why = Why(f"interference.cpi.{DB}.{JOB}", text, (Input("correlation", 0.82),))
    yield at(LIMITED_S + 7, Kind.NOTE, "interference", why, wake="tick")
    text = "batch/job-2 is ended: best-effort work uses more CPU than it may for 60 s."
    yield at(
        EVICTED_S, Kind.EVICTION, "cpu-evict", told("cpu-evict.satisfaction", text),
        cgroup=PODS[JOB2][3], result="evicted",
    )  # fmt: skip
    yield at(AWAY.start - 1, Kind.LIFECYCLE, "koordlet", told("lifecycle", "stopped"))
    yield at(AWAY.stop, Kind.LIFECYCLE, "koordlet", told("lifecycle", "koordlet 0.1.0 started"))
