"""The names table of docs/reference/qos.md 8.7, built and read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.kubepods import (
    Driver,
    Kubepods,
    classify,
    container_dir,
    container_id_of,
    find,
    host_application,
    is_container,
    is_in_system_partition,
    pod_uid_of,
)
from koordlet.kernel.cgroup.layout import Layout
from koordlet.protocol.qos import KubeQoS, QoSClass
from tests.kernel.dict_host import DictHost

UID = "6553a60b-2b97-442a-b6da-a5704d81dd98"
UID_ = UID.replace("-", "_")
STATIC_UID = "2d0ee9b7f4f5f1a1a6d1c1b0c8b7a6d5"
SYSTEMD = Kubepods("kubepods.slice")
NESTED = Kubepods("kubelet.slice/kubelet-kubepods.slice")
CGROUPFS = Kubepods("kubepods")
TREES = [SYSTEMD, NESTED, CGROUPFS, Kubepods("kubelet/kubepods")]
G, BU, BE = KubeQoS.GUARANTEED, KubeQoS.BURSTABLE, KubeQoS.BEST_EFFORT


@pytest.mark.parametrize(
    ("tree", "qos", "pod"),
    [
        (SYSTEMD, G, f"kubepods.slice/kubepods-pod{UID_}.slice"),
        (
            SYSTEMD,
            BU,
            f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice",
        ),
        (
            SYSTEMD,
            BE,
            f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice",
        ),
        (
            NESTED,
            BU,
            f"{NESTED.burstable}/kubelet-kubepods-burstable-pod{UID_}.slice",
        ),
        (CGROUPFS, G, f"kubepods/pod{UID}"),
        (CGROUPFS, BU, f"kubepods/burstable/pod{UID}"),
        (CGROUPFS, BE, f"kubepods/besteffort/pod{UID}"),
    ],
)
def test_pod_paths(tree: Kubepods, qos: KubeQoS, pod: str) -> None:
    assert tree.pod(qos, UID) == pod


@pytest.mark.parametrize(
    ("container_id", "systemd", "cgroupfs"),
    [
        ("containerd://abc", "cri-containerd-abc.scope", "abc"),
        ("docker://abc", "docker-abc.scope", "abc"),
        ("pouch://abc", "pouch-abc.scope", "abc"),
        ("cri-o://abc", "crio-abc.scope", "crio-abc"),
    ],
)
def test_container_directories(container_id: str, systemd: str, cgroupfs: str) -> None:
    assert container_dir(Driver.SYSTEMD, container_id) == systemd
    assert container_dir(Driver.CGROUPFS, container_id) == cgroupfs
    assert container_id_of(systemd) == container_id
    assert container_id_of(cgroupfs) in (container_id, "abc")


def test_a_nested_tree_carries_its_parent_in_every_name() -> None:
    assert NESTED.burstable == (
        "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice"
    )
    assert Kubepods("kubelet/kubepods").besteffort == "kubelet/kubepods/besteffort"


def test_the_example_of_the_specification() -> None:
    path = SYSTEMD.container(BE, "a-b", "containerd://X")
    assert path == (
        "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice/"
        "cri-containerd-X.scope"
    )


@pytest.mark.parametrize("wrong", ["abc", "rkt://abc", "containerd://", "containerd://a/b", ""])
def test_container_ids_of_no_runtime(wrong: str) -> None:
    with pytest.raises(ValueError, match="containerd://<id>"):
        container_dir(Driver.SYSTEMD, wrong)


@pytest.mark.parametrize(
    "name",
    [
        *("crio-conmon-abc.scope", "crio-conmon-abc", "crio-.scope", "crio-", ""),
        *("session-3.scope", "some.service", "inner.slice", "a b"),
        *("cri-containerd-\udcff.scope", "crio-a b", "docker-\x1b[m.scope", "crio-..scope"),
    ],
)
def test_directories_that_are_no_container(name: str) -> None:
    assert container_id_of(name) is None


@pytest.mark.parametrize(
    "name",
    [
        *("kubepods-burstable.slice", "burstable", "pod", "system.slice", "kubepods-pod.slice"),
        *("app-podman.slice", "podman.slice", "kubepods-podx y.slice"),
    ],
)
def test_directories_that_are_no_pod(name: str) -> None:
    assert pod_uid_of(name) is None


@pytest.mark.parametrize("tree", TREES, ids=lambda t: t.root)
@pytest.mark.parametrize("qos", list(KubeQoS))
@pytest.mark.parametrize("uid", [UID, STATIC_UID])
@pytest.mark.parametrize("is_system", [False, True])
def test_paths_are_read_back(tree: Kubepods, qos: KubeQoS, uid: str, is_system: bool) -> None:
    path = (tree.system if is_system else tree).container(qos, uid, "containerd://0123abc")
    _, pod, container = path.rsplit("/", 2)
    assert pod_uid_of(pod) == uid
    assert container_id_of(container) in ("containerd://0123abc", "0123abc")
    assert classify(path) is qos
    assert is_in_system_partition(path) == is_system


@pytest.mark.parametrize(
    ("path", "is_inside"),
    [
        ("kubepods/system/besteffort/podX", True),
        ("kubepods.slice/kubepods-system.slice/kubepods-system-podX.slice", True),
        ("kubelet/kubepods/system", True),
        ("kubepods/burstable/podX/system", False),
        ("kubepods/podX/kubepods/system", False),
        ("system.slice/kubepods-system.slice", False),
        ("kubepods.slice/system", False),
    ],
)
def test_the_partition_of_system_pods(path: str, is_inside: bool) -> None:
    """KEP-5894; whoever owns a cgroup inside a pod cannot claim it."""
    assert is_in_system_partition(path) == is_inside


@given(st.text(max_size=60))
def test_any_name_is_taken_or_left(name: str) -> None:
    uid = pod_uid_of(name)
    assert uid is None or (uid and "/" not in uid)
    container = container_id_of(name)
    assert container is None or container
    assert classify(name) in KubeQoS


@pytest.mark.parametrize(
    ("path", "qos"),
    [
        ("kubepods/burstable", BU),
        ("kubepods.slice", G),
        ("mybesteffort-app/x", G),
        ("kubepods/podX/burstableish", G),
        ("system.slice/kubepods-burstablex.slice", G),
    ],
)
def test_classify_goes_by_whole_names(path: str, qos: KubeQoS) -> None:
    assert classify(path) is qos


def cgroups_with(*paths: str) -> Cgroups:
    root = "/sys/fs/cgroup"
    host = DictHost({f"{root}/cgroup.procs": ""}, tuple(f"{root}/{path}" for path in paths))
    return Cgroups(host, Layout({}, root, frozenset()))


@pytest.mark.parametrize(
    ("paths", "root", "driver"),
    [
        (("kubepods/besteffort",), "kubepods", Driver.CGROUPFS),
        (("system.slice/x.service", "kubepods.slice"), "kubepods.slice", Driver.SYSTEMD),
        (("kubelet/kubepods",), "kubelet/kubepods", Driver.CGROUPFS),
        (
            ("kubelet.slice/kubelet-kubepods.slice",),
            "kubelet.slice/kubelet-kubepods.slice",
            Driver.SYSTEMD,
        ),
        (("kubepods", "kubepods.slice"), "kubepods.slice", Driver.SYSTEMD),
        # The driver was changed to cgroupfs; the old tree stays empty until the next boot.
        ((f"kubepods/burstable/pod{UID}", "kubepods.slice"), "kubepods", Driver.CGROUPFS),
        # A guest's, below what it owns.
        ((f"lxc/kubepods/burstable/pod{UID}", "kubepods.slice"), "kubepods.slice", Driver.SYSTEMD),
    ],
)
def test_find(paths: tuple[str, ...], root: str, driver: Driver) -> None:
    assert find(cgroups_with(*paths)) == Kubepods(root)
    assert Kubepods(root).driver is driver


@pytest.mark.parametrize("paths", [(), ("system.slice",), ("a/b/kubepods",), ("mykubepods",)])
def test_no_tree(paths: tuple[str, ...]) -> None:
    assert find(cgroups_with(*paths)) is None


@pytest.mark.parametrize(
    ("qos", "path"),
    [
        (QoSClass.LSE, "host-latency-sensitive/nginx"),
        (QoSClass.LSR, "host-latency-sensitive/nginx"),
        (QoSClass.LS, "host-latency-sensitive/nginx"),
        (QoSClass.BE, "host-best-effort/nginx"),
        (QoSClass.SYSTEM, "nginx"),
        (None, "nginx"),
    ],
)
def test_host_application_without_a_path(qos: QoSClass | None, path: str) -> None:
    assert host_application("nginx", qos) == path


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("CgroupRoot", "parent/app"),
        ("Kubepods", "kubepods/parent/app"),
        ("KubepodsBurstable", "kubepods/burstable/parent/app"),
        ("KubepodsBesteffort", "kubepods/besteffort/parent/app"),
    ],
)
def test_host_application_with_a_path(base: str, path: str) -> None:
    found = host_application(
        "x", None, base=base, parent_dir="/parent/", relative_path="app/", tree=CGROUPFS
    )
    assert found == path


def test_host_application_refuses_what_it_cannot_place() -> None:
    with pytest.raises(ValueError, match=r"'Elsewhere' is not one of CgroupRoot"):
        host_application("x", None, base="Elsewhere", tree=CGROUPFS)
    with pytest.raises(ValueError, match="needs a kubepods tree"):
        host_application("x", None, base="Kubepods")
    with pytest.raises(ValueError, match="is the root cgroup"):
        host_application("x", None, base="CgroupRoot", parent_dir="/")
    with pytest.raises(ValueError, match="needs a name"):
        host_application("", None, base="CgroupRoot", relative_path="x")


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        (f"kubepods.slice/kubepods-podu.slice/crio-{'a' * 64}.scope", True),
        (f"kubepods/besteffort/podu/{'a' * 64}", True),
        (f"machine.slice/crio-{'a' * 64}.scope", True),
        ("kubepods/besteffort/podu", False),
        ("kubepods.slice/kubepods-podu.slice", False),
        ("tenants/web", False),
        ("web", False),
    ],
)
def test_what_a_runtime_made_for_a_container(cgroup: str, expected: bool) -> None:
    assert is_container(cgroup) is expected
