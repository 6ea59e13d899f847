"""The plan of memory QoS: who gets what, and from where."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.resource import UNLIMITED
from koordlet.decision.snapshot import Capability, Resources
from koordlet.protocol.slo import MemoryQOS, NodeSLOSpec
from koordlet.qos.memory_qos.strategy import LOOK_S
from tests.qos.build import Kernel, app, bare, snapshot
from tests.qos.memory_qos.machine import (
    FLOORS,
    GIB,
    MIB,
    STOCK,
    VENDOR,
    R,
    decide,
    machine,
    of,
    on,
    sized,
    slo,
    taken,
    values,
)


def test_one_best_effort_pod_of_the_spec() -> None:
    pod = sized("b", "BE", "BestEffort", (GIB, GIB), (None, 0), batch=True)
    plan = decide(taken(machine(), pods=[pod], spec=slo(be=on(min_limit_percent=100)))).plan
    assert of(plan, "memory.min") == {
        "kubepods": GIB,
        "kubepods/besteffort": GIB,
        "kubepods/besteffort/podb": GIB,
        "kubepods/besteffort/podb/c0": GIB,
    }


@pytest.mark.parametrize("are_memory", [False, True])
def test_huge_pages_that_count_as_memory_get_room_of_their_own(are_memory: bool) -> None:
    """cgroup2 mounted with memory_hugetlb_accounting, as systemd 259 and later does."""
    pod = sized("l", "LS", "Burstable", (2 * GIB, 0))
    cgroup = f"{pod.cgroup}/c0"
    stat = f"anon 0\nhugetlb {3 * GIB}\n"
    kernel = Kernel({(each, R.MEMORY_STAT): stat for each in (cgroup, pod.cgroup)})
    node = machine()
    rules = msgspec.structs.replace(node.rules, huge_pages_are_memory=are_memory)
    node = msgspec.structs.replace(node, rules=rules)
    spec = slo(ls=on(min_limit_percent=50, throttling_percent=50))
    plan = decide(taken(node, pods=[pod], spec=spec, in_force=kernel)).plan
    huge = 3 * GIB if are_memory else 0
    assert of(plan, "memory.min") == dict.fromkeys(
        ("kubepods", "kubepods/burstable", pod.cgroup, cgroup), GIB + huge
    )
    assert of(plan, "memory.high") == {cgroup: 9 * GIB + huge}


def test_directories_promise_the_sum_of_what_is_below() -> None:
    pods = [
        sized("g", "LSR", "Guaranteed", (2 * GIB, 2 * GIB)),
        sized("l", "LS", "Burstable", (GIB, 0)),
        sized("m", "LS", "Burstable", (3 * GIB, 0)),
        sized("b", "BE", "BestEffort", (GIB, GIB), batch=True),
    ]
    spec = slo(
        lsr=on(min_limit_percent=100),
        ls=on(min_limit_percent=50, low_limit_percent=100),
        be=on(low_limit_percent=10),
    )
    plan = decide(taken(machine(), pods=pods, spec=spec)).plan
    hard, low = of(plan, "memory.min"), of(plan, "memory.low")
    assert hard["kubepods/burstable"] == 2 * GIB
    assert hard["kubepods"] == 4 * GIB
    assert "kubepods/besteffort" not in hard
    assert low["kubepods/burstable"] == 4 * GIB
    assert low["kubepods/besteffort"] == GIB // 10
    assert low["kubepods"] == 4 * GIB + GIB // 10


def test_a_pod_that_has_ended_promises_nothing() -> None:
    ended = sized("l", "LS", "Burstable", (GIB, 0))
    ended = msgspec.structs.replace(ended, phase="Succeeded")
    spec = slo(ls=on(min_limit_percent=100))
    assert decide(taken(machine(), pods=[ended], spec=spec)).plan.settings == ()


@pytest.mark.parametrize(
    ("annotation", "wanted"),
    [
        (None, {"min": GIB // 2, "high": None}),
        ('{"policy":"none","minLimitPercent":80}', {"min": None, "high": None}),
        ('{"policy":"auto"}', {"min": None, "high": None}),
        ('{"policy":"auto","throttlingPercent":90}', {"min": None, "high": 2040107008}),
        ('{"policy":"default","minLimitPercent":100}', {"min": GIB, "high": None}),
        ('{"minLimitPercent":0}', {"min": None, "high": None}),
        ('{"minLimitPercent":"x"}', {"min": GIB // 2, "high": None}),
        ("{not json", {"min": GIB // 2, "high": None}),
    ],
)
def test_the_annotation_wins_over_policy_over_node(
    annotation: str | None, wanted: dict[str, int | None]
) -> None:
    pod = sized("l", "LS", "Burstable", (GIB, 2 * GIB), annotation=annotation)
    plan = decide(taken(machine(), pods=[pod], spec=slo(ls=on(min_limit_percent=50)))).plan
    box = "kubepods/burstable/podl/c0"
    assert of(plan, "memory.min").get(box) == wanted["min"]
    assert of(plan, "memory.high").get(box) == wanted["high"]


@pytest.mark.parametrize("qos", ["BE", None])
def test_auto_works_where_the_node_has_it_off(qos: str | None) -> None:
    annotation = '{"policy":"auto","throttlingPercent":90}'
    pod = sized("b", qos, "BestEffort", (0, 100 * MIB), batch=qos == "BE", annotation=annotation)
    plan = decide(taken(machine(VENDOR), pods=[pod], spec=slo())).plan
    box = "kubepods/besteffort/podb/c0"
    assert of(plan, "memory.high") == {box: 90 * MIB}
    assert of(plan, "memory.wmark_ratio")[box] == 95
    assert of(plan, "memory.wmark_min_adj")[box] == 50


def test_all_off_nothing_is_set() -> None:
    pods = [sized("l", "LS", "Burstable", (GIB, 2 * GIB))]
    found = decide(taken(machine(VENDOR), pods=pods, apps=[app("a", "LS")], spec=slo()))
    assert found.plan.settings == () and not found.plan.keep_all
    assert found.notes == () and found.reclaims == ()


def test_levels_of_the_table() -> None:
    pod = sized("l", "LS", "Burstable", (GIB, 2 * GIB))
    qos = on(
        throttling_percent=50,
        priority_enable=1,
        priority=5,
        oom_kill_group=1,
        page_cache_limit_percent=50,
    )
    plan = decide(taken(machine(VENDOR), pods=[pod], spec=slo(ls=qos))).plan
    files: dict[str, set[str]] = {}
    for cgroup, name in values(plan):
        files.setdefault(cgroup, set()).add(name.removeprefix("memory."))
    wmarks = {"wmark_ratio", "wmark_scale_factor", "wmark_min_adj"}
    order = {"priority", "use_priority_oom"}
    cache = {"pagecache_limit.enable", "pagecache_limit.size", "pagecache_limit.sync"}
    assert files == {
        "kubepods/burstable": order,
        "kubepods/burstable/podl": wmarks | order | {"oom.group"} | cache,
        "kubepods/burstable/podl/c0": wmarks | order | {"oom.group", "high"},
    }


def test_an_application_is_pod_and_container_at_once() -> None:
    shop = app(
        "shop",
        "LS",
        "system.slice/shop.service",
        resources=Resources(request_memory_bytes=GIB, limit_memory_bytes=2 * GIB),
    )
    gone = app("gone", "LS", "system.slice/gone.service", present=False)
    qos = on(min_limit_percent=100, throttling_percent=50, page_cache_limit_percent=10)
    spec = slo(ls=qos)
    node = machine(VENDOR)
    found = decide(taken(node, apps=[shop, gone], spec=spec)).plan
    assert of(found, "memory.min") == {"system.slice": GIB, "system.slice/shop.service": GIB}
    assert of(found, "memory.high") == {"system.slice/shop.service": GIB + GIB // 2}
    assert "system.slice/shop.service" in of(found, "memory.pagecache_limit.size")


def test_an_application_inside_a_pod_is_promised_once() -> None:
    pod = sized("l", "LS", "Burstable", (2 * GIB, 0))
    inner = app("i", "LS", f"{pod.cgroup}/c0/i", resources=Resources(request_memory_bytes=GIB))
    spec = slo(ls=on(min_limit_percent=100))
    plan = decide(taken(machine(), pods=[pod], apps=[inner], spec=spec)).plan
    assert of(plan, "memory.min")["kubepods/burstable"] == 2 * GIB
    assert of(plan, "memory.min")[inner.cgroup] == GIB


def test_a_runtime_tells_limits_alone() -> None:
    """Of a Guaranteed pod that is the request too; of a Burstable one nobody knows it."""
    known = sized("g", "LSR", "Guaranteed", (None, 2 * GIB))
    unknown = sized("l", "LS", "Burstable", (None, 2 * GIB))
    spec = slo(lsr=on(min_limit_percent=100), ls=on(min_limit_percent=100, throttling_percent=50))
    found = decide(taken(machine(), pods=[known, unknown], spec=spec))
    assert of(found.plan, "memory.min") == {
        "kubepods": 2 * GIB,
        "kubepods/podg": 2 * GIB,
        "kubepods/podg/c0": 2 * GIB,
    }
    assert of(found.plan, "memory.high") == {}
    (note,) = [n for n in found.notes if n.rule == "memory-qos.no-request"]
    assert note.inputs[0].value == 2


@pytest.mark.parametrize(
    ("score", "wanted"),
    [
        (900, 1600 * MIB),
        (2, 15968 * MIB),
        ("900,950", 1600 * MIB),  # a process may raise its own
        (999, None),  # nothing may have been asked for
        (1000, None),
        (-997, None),  # a critical pod
        ("no process", None),
        (None, None),
    ],
)
def test_a_request_is_estimated_by_what_kubelet_made_of_it(
    score: int | str | None, wanted: int | None
) -> None:
    pod = sized("l", "LS", "Burstable", (None, 0))
    (cgroup,) = (each.cgroup for each in pod.containers)
    kernel = Kernel({} if score is None else {(cgroup, R.OOM_SCORE_ADJ): score})
    spec = slo(ls=on(min_limit_percent=50, throttling_percent=50))
    here = machine(memory_bytes=16000 * MIB)
    found = decide(taken(here, pods=[pod], spec=spec, in_force=kernel))
    groups = ("kubepods", "kubepods/burstable", pod.cgroup, cgroup) if wanted else ()
    assert of(found.plan, "memory.min") == dict.fromkeys(groups, (wanted or 0) // 2)
    assert of(found.plan, "memory.high") == {}, "a lower bound is no ceiling"
    for setting in found.plan.settings:
        if setting.cgroup in (pod.cgroup, cgroup):
            assert "estimated from oom_score_adj" in setting.why.text
            assert "request, estimated from oom_score_adj" in {i.name for i in setting.why.inputs}
    (note,) = [n for n in found.notes if n.rule == "memory-qos.no-request"]
    known = wanted is not None or score == 999
    assert note.text.endswith(f"it gets no {'' if known else 'floor and no '}memory.high")


def test_no_estimate_is_above_the_limit() -> None:
    pod = sized("l", "LS", "Burstable", (None, 100 * MIB))
    (cgroup,) = (each.cgroup for each in pod.containers)
    kernel = Kernel({(cgroup, R.OOM_SCORE_ADJ): 900})
    spec = slo(ls=on(min_limit_percent=50))
    found = decide(taken(machine(), pods=[pod], spec=spec, in_force=kernel))
    assert of(found.plan, "memory.min")[cgroup] == 50 * MIB


def test_what_kubelet_asked_the_runtime_for_goes_before_what_processes_have() -> None:
    pod = sized("l", "LS", "Burstable", (None, 0))
    asked = msgspec.structs.replace(pod.containers[0], requested={R.OOM_SCORE_ADJ: 900})
    pod = msgspec.structs.replace(pod, containers=(asked,))
    kernel = Kernel({(asked.cgroup, R.OOM_SCORE_ADJ): 500})
    here, spec = machine(memory_bytes=16000 * MIB), slo(ls=on(min_limit_percent=100))
    found = decide(taken(here, pods=[pod], spec=spec, in_force=kernel))
    assert of(found.plan, "memory.min")[pod.cgroup] == 1600 * MIB


def test_a_sandbox_that_nobody_tells_from_a_container_hides_no_pod() -> None:
    """The cgroup tree alone: kubelet's limit of the pod is there, the sandbox has none."""
    pod = sized("g", "LSR", "Guaranteed", (None, 2 * GIB), (None, 0))
    kernel = Kernel({(pod.cgroup, R.MEMORY_LIMIT): 2 * GIB})
    spec = slo(lsr=on(min_limit_percent=100))
    plan = decide(taken(machine(), pods=[pod], spec=spec, in_force=kernel)).plan
    assert of(plan, "memory.min") == {
        "kubepods": 2 * GIB,
        pod.cgroup: 2 * GIB,
        f"{pod.cgroup}/c0": 2 * GIB,
    }


def test_a_cgroup_that_nobody_has_named_yet_is_no_container_of_a_named_pod() -> None:
    """A runtime tells a new sandbox some seconds after the cgroup tree."""
    pod = msgspec.structs.replace(sized("l", "LS", "Burstable", (GIB, 2 * GIB)), name="web")
    told = pod.containers[0]
    new = msgspec.structs.replace(told, id="c9", cgroup=f"{pod.cgroup}/c9", name="")
    pod = msgspec.structs.replace(pod, containers=(told, new))
    plan = decide(taken(machine(), pods=[pod], spec=slo(ls=on(min_limit_percent=100)))).plan
    assert of(plan, "memory.min").keys() >= {pod.cgroup, told.cgroup}
    assert new.cgroup not in {setting.cgroup for setting in plan.settings}


def test_a_pod_of_unknown_size_promises_what_its_containers_are_promised() -> None:
    pod = sized("l", "LS", "Burstable", (GIB, 0), (None, 0))
    plan = decide(taken(machine(), pods=[pod], spec=slo(ls=on(min_limit_percent=100)))).plan
    assert of(plan, "memory.min")[pod.cgroup] == GIB
    assert of(plan, "memory.min")["kubepods"] == GIB


def test_what_kubelet_protects_more_stays() -> None:
    pod = sized("l", "LS", "Burstable", (GIB, 2 * GIB))
    box = f"{pod.cgroup}/c0"
    kernel = Kernel(
        {(box, R.MEMORY_MIN): GIB, (box, R.MEMORY_HIGH): GIB + MIB, (box, R.MEMORY_LIMIT): -1}
    )
    spec = slo(ls=on(min_limit_percent=50, throttling_percent=90))
    plan = decide(taken(machine(), pods=[pod], spec=spec, in_force=kernel)).plan
    assert box not in of(plan, "memory.min") and box not in of(plan, "memory.high")
    assert of(plan, "memory.min")[pod.cgroup] == GIB // 2
    kernel.values[box, R.MEMORY_HIGH] = UNLIMITED
    plan = decide(taken(machine(), pods=[pod], spec=spec, in_force=kernel)).plan
    assert box in of(plan, "memory.high")


def test_what_the_kernel_lacks_is_told_once_and_not_planned() -> None:
    pod = sized("l", "LS", "Burstable", (GIB, 2 * GIB))
    spec = slo(ls=on(min_limit_percent=50, throttling_percent=90))
    old = decide(taken(machine(()), pods=[pod], spec=spec))
    assert old.plan.settings == ()
    (note,) = [n for n in old.notes if n.rule == "memory-qos.unsupported"]
    assert "memory.high (tried)" in note.text and "memory.min (tried)" in note.text
    stock = decide(taken(machine(STOCK), pods=[pod], spec=spec))
    (note,) = [n for n in stock.notes if n.rule == "memory-qos.reclaims"]
    assert "memory.wmark_ratio" in note.text
    assert not [n for n in stock.notes if n.rule == "memory-qos.unsupported"]
    before_5_19 = decide(taken(machine((*FLOORS, "memory.high")), pods=[pod], spec=spec))
    (note,) = [n for n in before_5_19.notes if n.rule == "memory-qos.unsupported"]
    assert "memory.wmark_ratio (tried)" in note.text and "memory.reclaim (tried)" in note.text


@pytest.mark.parametrize("percent", [90, 0])
@pytest.mark.parametrize("supported", [True, False, None])
def test_a_watch_that_sees_nothing_is_told(percent: int, supported: bool | None) -> None:
    """Some distributions boot with psi=0."""
    pod = sized("l", "LS", "Burstable", (GIB, 2 * GIB))
    node = machine(STOCK)
    if supported is not None:
        psi = Capability("psi-cgroup", supported, "cpu.pressure: EOPNOTSUPP")
        node = msgspec.structs.replace(node, capabilities={**node.capabilities, "psi-cgroup": psi})
    found = decide(taken(node, pods=[pod], spec=slo(ls=on(throttling_percent=percent))))
    told = [note.text for note in found.notes if note.rule == "memory-qos.unwatched"]
    assert bool(told) is (supported is False and percent > 0)
    assert all("EOPNOTSUPP" in text for text in told)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"spec": NodeSLOSpec()}, "memory-qos.no-slo"),
        ({"sources_synced": False}, "memory-qos.not-synced"),
    ],
)
def test_without_an_input_everything_stays(fields: dict[str, object], rule: str) -> None:
    fields = {"spec": slo(ls=on(min_limit_percent=100))} | fields
    found = decide(taken(machine(), **fields))
    assert found.plan.keep_all and [n.rule for n in found.notes] == [rule]
    unprobed = decide(snapshot(bare(4), spec=slo()))
    assert unprobed.plan.keep_all


def test_the_files_are_not_asked_again_each_second() -> None:
    """What stands is made anew when pods change, and now and then for what the files say."""
    pods = (sized("g", "LSR", "Guaranteed", (None, 0)),)
    box = f"{pods[0].cgroup}/c0"
    kernel = Kernel({(box, R.MEMORY_LIMIT): 64 * MIB})
    fields = {"pods": pods, "in_force": kernel, "spec": slo(lsr=on(min_limit_percent=100))}
    node = machine()
    first = decide(snapshot(node, now=100.0, **fields))
    kernel.values[box, R.MEMORY_LIMIT] = 32 * MIB
    soon = decide(snapshot(node, now=101.0, **fields), first.memory)
    assert of(soon.plan, "memory.min")[box] == 64 * MIB
    later = decide(snapshot(node, now=100.0 + LOOK_S, **fields), soon.memory)
    assert of(later.plan, "memory.min")[box] == 32 * MIB
    fields |= {"pods": (*pods, sized("h", "LSR", "Guaranteed", (MIB, MIB)))}
    more = decide(snapshot(node, now=101.0, **fields), soon.memory)
    assert of(more.plan, "memory.min")["kubepods"] == 33 * MIB


percents = st.integers(0, 100)
qoses = st.builds(
    MemoryQOS,
    enable=st.booleans(),
    min_limit_percent=percents,
    low_limit_percent=percents,
    throttling_percent=percents,
)
amounts = st.lists(
    st.tuples(st.integers(0, 4 * GIB), st.integers(0, 4 * GIB)), min_size=1, max_size=3
)
kinds = st.sampled_from(
    [("LSR", "Guaranteed"), ("LS", "Burstable"), ("BE", "BestEffort"), (None, "Burstable")]
)


@given(
    pods=st.lists(st.tuples(kinds, amounts), max_size=4),
    lsr=qoses,
    ls=qoses,
    be=qoses,
    features=st.sampled_from([(), FLOORS, STOCK, VENDOR]),
)
def test_any_plan_is_sound(
    pods: list[tuple[tuple[str | None, str], list[tuple[int, int]]]],
    lsr: MemoryQOS,
    ls: MemoryQOS,
    be: MemoryQOS,
    features: tuple[str, ...],
) -> None:
    """Parents promise at least what their children do together, a low floor is not below the
    hard one, memory.high never below the floor, and only files of this kernel are named."""
    found = [
        sized(str(i), qos, kube, *each, batch=qos == "BE")
        for i, ((qos, kube), each) in enumerate(pods)
    ]
    spec = slo(lsr=lsr, ls=ls, be=be)
    decision = decide(taken(machine(features), pods=found, spec=spec))
    assert {str(s.resource) for s in decision.plan.settings} <= set(features)
    assert len(values(decision.plan)) == len(decision.plan.settings)
    for name in FLOORS:
        floor = of(decision.plan, name)
        below: dict[str, int] = {}
        for pod in found:
            for directory in ("kubepods", pod.cgroup.rpartition("/")[0]):
                if pod.cgroup in floor and not (directory == "kubepods" == pod.cgroup):
                    below.setdefault(directory, 0)
        for directory in below:
            pods_below = [p.cgroup for p in found if p.cgroup.startswith(directory + "/")]
            assert floor[directory] == sum(int(str(floor.get(c, 0))) for c in pods_below)
    hard, high = of(decision.plan, "memory.min"), of(decision.plan, "memory.high")
    assert all(value == UNLIMITED or value >= hard.get(c, 0) for c, value in high.items())  # type: ignore[operator]
    again = decide(taken(machine(features), pods=found, spec=spec), decision.memory)
    assert values(again.plan) == values(decision.plan)
    off = decide(taken(machine(features), pods=found, spec=slo()), decision.memory)
    assert off.plan.settings == () and not off.memory.watched and not off.memory.tracks
