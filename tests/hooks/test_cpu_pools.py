"""Share pools: told, or derived (docs/reference/protocol.md 2.8)."""

from __future__ import annotations

import pytest

from koordlet.decision.snapshot import CpuPool
from koordlet.hooks.cpu_pools import be_share_pools, cpus_of, share_pools
from tests.qos.build import EIGHT, node, pod, snapshot, topology


def lists(pools: tuple[CpuPool, ...]) -> list[tuple[int, int, list[int]]]:
    return [(pool.socket, pool.numa, sorted(pool.cpus)) for pool in pools]


def test_alone_everything_is_shared() -> None:
    snap = snapshot(node(EIGHT))
    assert lists(share_pools(snap)) == [(0, 0, [0, 1, 2, 3]), (0, 1, [4, 5, 6, 7])]
    assert share_pools(snap) == be_share_pools(snap)


def test_what_somebody_has_for_himself_is_not_shared() -> None:
    machine = node(
        EIGHT,
        reserved=frozenset({0}),
        system_exclusive=frozenset({1}),
        static_cpus=frozenset({2}),
    )
    pods = [pod("lsr", "LSR", cpus={4, 5}), pod("lse", "LSE", cpus={6}), pod("ls", "LS")]
    snap = snapshot(machine, pods=pods)
    assert lists(share_pools(snap)) == [(0, 0, [3]), (0, 1, [7])]
    assert lists(be_share_pools(snap)) == [(0, 0, [3]), (0, 1, [4, 5, 7])]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ended_holds_nothing(phase: str) -> None:
    ended = pod("a", "LSE", cpus={4, 5, 6, 7}, phase=phase)
    snap = snapshot(node(EIGHT), pods=[ended])
    assert cpus_of(share_pools(snap)) == cpus_of(be_share_pools(snap)) == set(range(8))


def test_a_numa_node_without_free_cpus_has_no_pool() -> None:
    snap = snapshot(node(EIGHT), pods=[pod("a", "LSR", cpus={0, 1, 2, 3})])
    assert lists(share_pools(snap)) == [(0, 1, [4, 5, 6, 7])]


def test_sorted_by_socket_then_numa() -> None:
    machine = node(topology(4, sockets=[1, 1, 0, 0], numa=[2, 0, 3, 1]))
    assert lists(share_pools(snapshot(machine))) == [
        (0, 1, [3]),
        (0, 3, [2]),
        (1, 0, [1]),
        (1, 2, [0]),
    ]


def test_what_a_cluster_told_counts_as_far_as_it_is_online() -> None:
    told = (CpuPool(0, 0, frozenset({2, 3, 64})), CpuPool(0, 1, frozenset({99})))
    machine = node(EIGHT, share_pools=told)
    snap = snapshot(machine, pods=[pod("a", "LSR", cpus={2})])
    assert lists(share_pools(snap)) == [(0, 0, [2, 3]), (0, 1, [])]
    assert cpus_of(be_share_pools(snap)) == set(range(8))
    assert share_pools(snapshot(node(EIGHT, share_pools=()))) == ()


def test_of_some_numa_nodes() -> None:
    pools = share_pools(snapshot(node(EIGHT)))
    assert cpus_of(pools, {1}) == {4, 5, 6, 7}
    assert cpus_of(pools, {7}) == frozenset()
    assert cpus_of(()) == frozenset()


@pytest.mark.parametrize("qos", ["LS", "BE", "SYSTEM", None])
def test_a_pod_that_only_says_so_holds_nothing(qos: str | None) -> None:
    """Else a best-effort pod could confine all others to one CPU."""
    liar = pod("liar", qos, "BestEffort", cpus=range(7))
    snap = snapshot(node(EIGHT), pods=[liar, pod("web", "LS")])
    assert cpus_of(share_pools(snap)) == cpus_of(be_share_pools(snap)) == set(range(8))


@pytest.mark.parametrize("qos", ["LSE", "LSR"])
def test_a_label_that_kubernetes_contradicts_holds_nothing(qos: str) -> None:
    liar = pod("liar", qos, "BestEffort", cpus=range(7))
    snap = snapshot(node(EIGHT), pods=[liar])
    assert cpus_of(share_pools(snap)) == cpus_of(be_share_pools(snap)) == set(range(8))
