"""Best-effort work with cold memory gives way first, by how much of it is cold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision import memory_figures as m
from koordlet.decision.metrics import Metric
from koordlet.decision.plan import Decision
from koordlet.decision.snapshot import Application
from koordlet.protocol.qos import QoSClass
from koordlet.qos.memory_qos.pace import DOUBT_S, FIRST_STEP_BYTES, SOON_S
from koordlet.qos.memory_qos.reclaim import AT_ONCE, free_target_bytes
from tests.qos.build import Kernel, Metrics
from tests.qos.memory_qos.machine import (
    GIB,
    MIB,
    R,
    decide,
    free,
    machine,
    on,
    pressure,
    sized,
    slo,
    stat,
    taken,
)

NODE = machine(memory_bytes=16 * GIB)
TARGET = free_target_bytes(NODE.memory_bytes, 50)
STEP = FIRST_STEP_BYTES
UIDS = ("a", "b", "c")


def cgroup(uid: str) -> str:
    return f"kubepods/besteffort/pod{uid}"


def memory(used: dict[str, int], stolen: int = 0, refaults: int = 0) -> Kernel:
    known = Kernel()
    for uid, size in used.items():
        known.values |= {
            (cgroup(uid), R.MEMORY_USAGE): size,
            (cgroup(uid), R.MEMORY_PRESSURE): pressure(0),
            (cgroup(uid), R.MEMORY_STAT): stat(refaults, stolen // 4096),
        }
    return known


def short_of(missing: int, *cold: tuple[Metric, str, int], swap: int = 0) -> Metrics:
    metrics = free(TARGET - missing, NODE.memory_bytes)
    metrics.samples[m.NODE_SWAP_FREE.kind, ()] = swap
    for metric, label, size in cold:
        metrics.samples[metric.kind, (label,)] = size
    return metrics


def step(
    metrics: Metrics, known: Kernel, now: float = 0.0, before: Decision | None = None
) -> Decision:
    pods = [sized(uid, "BE", "BestEffort", (0, 0), batch=True) for uid in UIDS]
    snap = taken(NODE, spec=slo(be=on()), pods=pods, in_force=known, now=now, metrics_=metrics)
    return decide(snap, before.memory if before else None)


def asked(decision: Decision) -> dict[str, int]:
    return {each.cgroup: each.size_bytes for each in decision.reclaims}


USED = {"a": 3 * GIB, "b": 2 * GIB, "c": GIB}
CACHE = m.POD_MEMORY_COLD_PAGE_SIZE


def test_who_is_cold_gives_all_where_that_is_enough() -> None:
    found = step(short_of(100 * MIB, (CACHE, "c", 200 * MIB)), memory(USED))
    assert asked(found) == {cgroup("c"): STEP}
    why = found.reclaims[0].why
    assert why.text == (
        "the node has 100 MiB less free memory than it should; pod /c gives memory back first, "
        "since 200 MiB of it are cold"
    )
    facts = {fact.name: fact.value for fact in why.inputs}
    assert facts == {"missing": 100 * MIB, "wmarkMinAdj": 50, "cold": 200 * MIB}


def test_the_most_cold_first_and_the_largest_for_what_is_missing_beyond_that() -> None:
    metrics = short_of(200 * MIB, (CACHE, "c", 20 * MIB), (CACHE, "b", 150 * MIB))
    found = step(metrics, memory(USED))
    # 30 MiB are missing beyond the 170 that are cold.
    assert list(asked(found).items()) == [
        (cgroup("b"), STEP),
        (cgroup("c"), STEP),
        (cgroup("a"), STEP),
    ]
    metrics = short_of(175 * MIB, (CACHE, "c", 20 * MIB), (CACHE, "b", 150 * MIB))
    assert asked(step(metrics, memory(USED)))[cgroup("a")] == 5 * MIB


def test_no_more_is_asked_for_as_cold_than_is_cold() -> None:
    found = step(short_of(100 * MIB, (CACHE, "c", 6 * MIB)), memory({"c": GIB}))
    assert asked(found) == {cgroup("c"): 6 * MIB}


def test_what_was_asked_for_since_it_was_measured_is_cold_no_more() -> None:
    metrics = short_of(300 * MIB, (CACHE, "c", 40 * MIB))
    first = step(metrics, memory({"c": GIB}))
    metrics.age_s = 1.2
    second = step(metrics, memory({"c": GIB}, stolen=STEP), 1.0, first)
    assert (asked(first), asked(second)) == ({cgroup("c"): STEP}, {cgroup("c"): 24 * MIB})
    metrics.age_s = 1.9
    # Nothing that is cold is left, so it gives way as a large user does, by the usual step.
    third = step(metrics, memory({"c": GIB}, stolen=STEP + 24 * MIB), 1.7, second)
    assert "cold" not in third.reclaims[0].why.text
    metrics.age_s = 0.2
    fourth = step(metrics, memory({"c": GIB}, stolen=STEP + 24 * MIB + 64 * MIB), 3.0, third)
    assert "since 40 MiB of it are cold" in fourth.reclaims[0].why.text


class Box:
    """The three pods, of which c reports cold memory that comes back whenever it is taken."""

    def __init__(self, missing: int, cold: int) -> None:
        self.missing = missing
        self.metrics = short_of(missing, *([(CACHE, "c", cold)] if cold else []))
        self.stolen = dict.fromkeys(UIDS, 0)
        self.now = 0.0
        self.before: Decision | None = None

    def tick(self) -> dict[str, int]:
        """What was asked for, by pod; a and b give it, c gets it back at once."""
        self.metrics.samples |= free(TARGET - self.missing, NODE.memory_bytes).samples
        known = memory(USED)
        for uid, stolen in self.stolen.items():
            back = stolen if uid == "c" else 0
            known.values[cgroup(uid), R.MEMORY_STAT] = stat(back // 4096, stolen // 4096)
        self.before = step(self.metrics, known, self.now, self.before)
        sizes = {name.removeprefix("kubepods/besteffort/pod"): size
                 for name, size in asked(self.before).items()}  # fmt: skip
        for uid, size in sizes.items():
            self.stolen[uid] += size
            self.missing -= size if uid != "c" else 0
        self.now += 1
        return sizes


def test_cold_memory_that_comes_back_is_left_to_its_owner_and_others_give() -> None:
    box = Box(450 * MIB, cold=900 * MIB)
    assert box.tick() == {"c": STEP}
    sizes = [box.tick() for _ in range(4)]
    assert [each["a"] for each in sizes] == [STEP, 2 * STEP, 4 * STEP, 8 * STEP]
    assert [each["b"] for each in sizes[:3]] == [STEP, 2 * STEP, 4 * STEP]
    assert box.missing == 0
    assert box.stolen["c"] < 2 * STEP


def test_a_wrong_figure_costs_one_step_in_ten_minutes() -> None:
    """Also where the node is short again and again by as much as has just come back."""
    box = Box(STEP, cold=900 * MIB)
    assert box.tick() == {"c": STEP}
    box.missing = 0
    assert box.tick() == {}
    for second in range(int(DOUBT_S)):
        box.missing = STEP if second % 20 == 0 else 0
        assert box.tick().keys() <= {"a"}
    box.missing = STEP
    assert box.tick() == {"c": STEP}


def test_who_gives_its_cold_memory_slowly_does_not_give_it_alone() -> None:
    metrics = short_of(200 * MIB, (CACHE, "c", 900 * MIB))
    first = step(metrics, memory(USED))
    second = step(metrics, memory(USED, stolen=3 * MIB), 1.0, first)
    assert asked(second) == {cgroup("c"): 3 * MIB, cgroup("a"): STEP, cgroup("b"): STEP}


def test_steps_of_those_that_are_passed_over_stay_as_large_as_they_were() -> None:
    metrics = short_of(450 * MIB)
    first = step(metrics, memory(USED))
    metrics.samples[CACHE.kind, ("c",)] = 900 * MIB
    second = step(metrics, memory(USED, stolen=STEP), 1.0, first)
    assert asked(second) == {cgroup("c"): 2 * STEP}
    del metrics.samples[CACHE.kind, ("c",)]
    third = step(metrics, memory(USED, stolen=3 * STEP), 2.0, second)
    assert asked(third)[cgroup("a")] == 2 * STEP
    late = step(metrics, memory(USED, stolen=3 * STEP), 2.0 + SOON_S, third)
    assert asked(late)[cgroup("a")] == STEP


def test_a_floor_is_not_counted_as_cold() -> None:
    pods = [sized(uid, "BE", "BestEffort", (0, 0), batch=True) for uid in ("a", "b")]
    pods.append(sized("c", "BE", "BestEffort", (GIB - STEP, 0), batch=True))
    metrics = short_of(100 * MIB, (CACHE, "c", 900 * MIB))
    spec = slo(be=on(low_limit_percent=100))
    snap = taken(NODE, spec=spec, pods=pods, in_force=memory(USED), now=0.0, metrics_=metrics)
    assert asked(decide(snap)) == {cgroup(uid): STEP for uid in UIDS}


def test_anonymous_memory_counts_as_far_as_swap_is_free() -> None:
    cold = ((m.POD_MEMORY_COLD_ANON, "c", 500 * MIB), (m.POD_MEMORY_COLD_MAPPED, "b", 90 * MIB))
    without = step(short_of(100 * MIB, *cold), memory(USED))
    assert next(iter(asked(without))) == cgroup("a")
    found = step(short_of(100 * MIB, *cold, swap=64 * MIB), memory(USED))
    inputs = [{f.name: f.value for f in each.why.inputs} for each in found.reclaims]
    assert [each.get("cold") for each in inputs] == [64 * MIB, 64 * MIB]
    assert sorted(asked(found)) == [cgroup("b"), cgroup("c")]


def test_an_application_gives_way_by_what_is_cold_in_it() -> None:
    app = Application("batch", "batch", QoSClass.BE)
    known = memory({"a": 3 * GIB})
    known.values |= {
        ("batch", R.MEMORY_USAGE): GIB,
        ("batch", R.MEMORY_PRESSURE): pressure(0),
        ("batch", R.MEMORY_STAT): stat(0),
    }
    metrics = short_of(50 * MIB, (m.HOST_APPLICATION_MEMORY_COLD_PAGE_SIZE, "batch", GIB))
    pods = [sized("a", "BE", "BestEffort", (0, 0), batch=True)]
    snap = taken(
        NODE, spec=slo(be=on()), pods=pods, apps=[app], in_force=known, now=0.0, metrics_=metrics
    )
    assert asked(decide(snap)) == {"batch": STEP}


def test_what_was_measured_long_ago_or_is_less_than_a_step_tells_nothing() -> None:
    metrics = short_of(100 * MIB, (CACHE, "c", MIB - 1))
    assert next(iter(asked(step(metrics, memory(USED))))) == cgroup("a")


@given(
    cold=st.lists(st.integers(0, GIB), min_size=3, max_size=3),
    used=st.lists(st.integers(0, 2 * GIB), min_size=3, max_size=3),
    missing=st.integers(1, GIB // 4),
)
def test_nobody_hot_gives_what_the_cold_ones_can(
    cold: list[int], used: list[int], missing: int
) -> None:
    known = [(CACHE, uid, min(size, has)) for uid, size, has in zip(UIDS, cold, used, strict=True)]
    found = step(short_of(missing, *known), memory(dict(zip(UIDS, used, strict=True))))
    sizes = asked(found)
    assert len(sizes) <= AT_ONCE and sum(sizes.values()) <= missing + 3 * STEP
    colds = {cgroup(uid): size for _, uid, size in known if size >= MIB}
    if sum(colds.values()) >= missing:
        assert sizes.keys() <= colds.keys()
