"""Random trees of cgroups and random values that are valid for them."""

from __future__ import annotations

from hypothesis import strategies as st

from koordlet.actuator.merge import Key, ancestors
from koordlet.decision.resource import UNLIMITED, Resource, Value
from koordlet.protocol.cpuset import format_cpulist

CPUS = 6

PATHS = ("a", "a/b", "a/b/c", "a/b/d", "a/e", "f", "f/g")
"""Parents first."""

Tree = dict[Key, Value]


@st.composite
def sets(draw: st.DrawFn) -> Tree:
    """Each child's CPUs inside its parent's, none of them empty."""
    tree: Tree = {}
    chosen: dict[str, list[int]] = {"": list(range(CPUS))}
    for path in PATHS:
        above = chosen[next(ancestors(path))]
        mine = draw(st.lists(st.sampled_from(above), min_size=1, unique=True))
        chosen[path] = mine
        tree[Key(path, Resource.CPUSET_CPUS)] = format_cpulist(mine)
    return tree


@st.composite
def bandwidth(draw: st.DrawFn) -> Tree:
    """quota/period at most that of the nearest limited ancestor, burst at most the quota."""
    tree: Tree = {}
    ratios: dict[str, int] = {"": 10_000_000}  # quota per second of period, us
    for path in PATHS:
        above = ratios[next(ancestors(path))]
        period = draw(st.sampled_from([50_000, 100_000, 200_000]))
        most = above * period // 1_000_000
        limited = most >= 1000 and draw(st.booleans())
        quota = draw(st.integers(1000, most)) if limited else UNLIMITED
        # Rounded up, so that a child computed from it never exceeds the true ratio.
        ratios[path] = quota * 1_000_000 // period if limited else above
        tree[Key(path, Resource.CPU_PERIOD_US)] = period
        tree[Key(path, Resource.CPU_QUOTA_US)] = quota
        highest = min(quota, 500_000) if limited else 500_000
        tree[Key(path, Resource.CPU_BURST_US)] = draw(st.integers(0, highest))
    return tree


@st.composite
def weights(draw: st.DrawFn) -> Tree:
    tree: Tree = {}
    for path in PATHS:
        idle = draw(st.integers(0, 1))
        tree[Key(path, Resource.CPU_IDLE)] = idle
        if not idle:
            tree[Key(path, Resource.CPU_SHARES)] = draw(st.sampled_from([2, 77, 1024, 4096]))
        tree[Key(path, Resource.MEMORY_LIMIT)] = draw(
            st.sampled_from([UNLIMITED, 64 << 20, 128 << 20, 512 << 20])
        )
    return tree


def trees() -> st.SearchStrategy[Tree]:
    """All of them together."""
    return st.builds(
        lambda *parts: {k: v for p in parts for k, v in p.items()}, sets(), bandwidth(), weights()
    )
