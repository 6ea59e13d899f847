"""Which ids a cgroup has, and how much work it may make."""

from __future__ import annotations

from koordlet_fakefs import FakeHost

from koordlet.kernel.background import no_pause
from koordlet.kernel.cgroup.ids import MOST_IDS, Ids, ids_within
from koordlet.kernel.cgroup.layout import detect


def _pod() -> tuple[FakeHost, str]:
    host = FakeHost("v2")
    host.make_cgroup("pod")
    return host, f"{detect(host).reference_root}/pod"


def test_the_nearest_and_oldest_come_first() -> None:
    host, pod = _pod()
    for each in ("pod/b", "pod/b/inner", "pod/a"):
        host.make_cgroup(each)
    wanted = [host.inode(f"{pod}{each}") for each in ("", "/b", "/a", "/b/inner")]
    assert ids_within(host, pod, no_pause) == Ids(tuple(wanted))


def test_a_cgroup_that_is_gone_has_none() -> None:
    host, pod = _pod()
    assert ids_within(host, f"{pod}/none", no_pause) == Ids(())


def test_thousands_of_nested_cgroups_make_no_more_work_than_some() -> None:
    host, pod = _pod()
    for number in range(200):
        host.make_cgroup(f"pod/wide{number}/deep")
    host.make_cgroup("pod/" + "/".join("d" * 200))
    pauses: list[None] = []
    found = ids_within(host, pod, lambda: pauses.append(None))
    assert found.cut
    assert len(found.found) == MOST_IDS
    assert host.inode(f"{pod}/wide0") in found.found
    assert len(pauses) <= MOST_IDS


def test_a_deep_row_of_cgroups_is_followed_up_to_the_bound() -> None:
    host, pod = _pod()
    host.make_cgroup("pod/" + "/".join("d" * (MOST_IDS - 1)))
    assert ids_within(host, pod, no_pause).cut is False
    host.make_cgroup("pod/" + "/".join("d" * MOST_IDS))
    found = ids_within(host, pod, no_pause)
    assert (len(found.found), found.cut) == (MOST_IDS, True)
