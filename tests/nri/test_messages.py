"""NRI's messages to our facts, and what hooks want to NRI's messages."""

from __future__ import annotations

import pytest

from koordlet.decision.answer import Combined
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import DeviceNode
from koordlet.decision.strategy import Device, EnvVar, Mount
from koordlet.hooks.delivery import FIELDS
from koordlet.nri import changes, facts, fields
from koordlet.protocol.qos import KubeQoS
from koordlet.wire.pb import nri_pb2 as nri
from tests.nri.world import WHY, container, cpu, sandbox, wants

POD = "kubepods-besteffort-pod1_2.slice"
FULL = f"kubepods.slice/kubepods-besteffort.slice/{POD}"


@pytest.mark.parametrize(
    ("text", "cgroup"),
    [
        ("/kubepods/burstable/podU", "kubepods/burstable/podU"),
        (f"/{FULL}", FULL),
        (POD, FULL),
        ("system.slice", "system.slice"),
        ("/", None),
        ("", None),
        ("-.slice", None),
        ("a--b.slice", None),
        ("/kubepods/../../etc", None),
        ("/kubepods//podU", None),
    ],
)
def test_parent_of_a_pod(text: str, cgroup: str | None) -> None:
    assert facts.parent_cgroup(text) == cgroup


@pytest.mark.parametrize(
    ("text", "cgroup"),
    [
        (f"{POD}:cri-containerd:abc", f"{FULL}/cri-containerd-abc.scope"),
        (f"{POD}:crio:abc", f"{FULL}/crio-abc.scope"),
        (":cri-containerd:abc", "system.slice/cri-containerd-abc.scope"),
        ("/kubepods/besteffort/podU/abc", "kubepods/besteffort/podU/abc"),
        ("kubelet/kubepods/podU/abc", "kubelet/kubepods/podU/abc"),
        ("", None),
        ("/", None),
        (f"{POD}:cri-containerd:", None),
        ("not-a-slice:cri-containerd:abc", None),
        (f"{POD}:cri-containerd:../abc", None),
        ("/kubepods/../abc", None),
    ],
)
def test_cgroup_of_a_container(text: str, cgroup: str | None) -> None:
    assert facts.container_cgroup(text) == cgroup


def test_a_pod_with_all_that_is_known() -> None:
    pod = sandbox(runtime_handler="kata", ips=["10.0.0.7"])
    found = facts.pod_facts(pod, "containerd")
    assert (found.uid, found.name, found.namespace) == ("uid-1", "pod-1", "default")
    assert found.cgroup == "kubepods/besteffort/poduid-1"
    assert found.kube_qos is KubeQoS.BEST_EFFORT
    assert found.labels == {"koordinator.sh/qosClass": "BE"}
    assert found.annotations == {"note": "x"}
    assert (found.ips, found.runtime_handler) == (("10.0.0.7",), "kata")
    assert found.host_network is False
    assert found.as_of is None
    (own,) = found.containers
    assert (own.id, own.is_sandbox) == ("containerd://sandbox1", True)
    assert own.cgroup == "kubepods/besteffort/poduid-1/sandbox1"


def test_a_pod_of_which_little_is_known() -> None:
    pod = nri.PodSandbox(labels={facts.UID_LABEL: "u"})
    found = facts.pod_facts(pod, "frankencontainer")
    assert found.uid == "u"
    assert (found.cgroup, found.kube_qos, found.ips, found.host_network) == (None,) * 4
    assert found.containers == ()
    host = nri.LinuxPodSandbox(namespaces=[nri.LinuxNamespace(type="pid")])
    assert facts.pod_facts(sandbox(linux=host), "cri-o").host_network is True
    assert facts.container_id("abc", "frankencontainer") == "abc"
    assert facts.container_id("abc", "cri-o") == "cri-o://abc"


def test_zero_is_nothing_that_was_asked_for() -> None:
    linux = nri.LinuxContainer(
        resources=cpu(shares=512, cpus="0-1"), oom_score_adj=nri.OptionalInt(value=0)
    )
    assert fields.requested(linux) == {
        Resource.CPU_SHARES: 512,
        Resource.CPUSET_CPUS: "0-1",
        Resource.OOM_SCORE_ADJ: 0,
    }
    assert fields.requested(nri.LinuxContainer()) == {}
    assert fields.requested_of(cpu(quota=-1)) == {Resource.CPU_QUOTA_US: -1}


@pytest.mark.parametrize("path", [each.nri for each in FIELDS.values() if each.nri])
def test_every_field_of_the_table_is_there(path: str) -> None:
    linux = nri.LinuxContainerAdjustment()
    assert fields.read(linux, path) is None
    value = "3" if path.rpartition(".")[2] in ("cpus", "mems", "rdt_class") else 0
    fields.write(linux, path, value)
    assert fields.read(
        nri.LinuxContainerAdjustment.FromString(linux.SerializeToString()), path
    ) == (value)


def test_a_value_that_a_field_cannot_hold_is_told_with_its_path() -> None:
    with pytest.raises(ValueError, match=r"resources\.cpu\.shares: -1"):
        fields.write(nri.LinuxContainerAdjustment(), "resources.cpu.shares", -1)
    with pytest.raises(TypeError, match=r"resources\.cpu\.cpus: 7"):
        fields.write(nri.LinuxContainerAdjustment(), "resources.cpu.cpus", 7)


def test_an_adjustment_holds_what_differs() -> None:
    gpu = Device(DeviceNode("/dev/infiniband/uverbs0", 231, 192), WHY)
    have = Device(DeviceNode("/dev/here", 1, 3), WHY)
    combined = Combined(
        settings=wants(
            CPU_SHARES=2,  # as it is
            CPU_QUOTA_US=-1,
            CPUSET_CPUS="",  # cannot be said
            OOM_SCORE_ADJ=-1,
            RESCTRL_GROUP="BE",
            CPU_BVT_WARP_NS=-1,  # no field
        ).settings,
        env=(EnvVar("A", "1", WHY), EnvVar("B", "x=y", WHY), EnvVar("PATH", "/sbin", WHY)),
        mounts=(Mount("/lib/hami.so", "/lib/hami.so", WHY), Mount("/tmp", "/tmp", WHY)),
        devices=(gpu, have),
    )
    one = container()
    one.mounts.add(destination="/tmp", source="/tmp", type="bind")
    one.linux.devices.add(path="/dev/here", type="c", major=1, minor=3)
    found = changes.adjustment(combined, one)
    assert found == nri.ContainerAdjustment(
        env=[nri.KeyValue(key="B", value="x=y"), nri.KeyValue(key="PATH", value="/sbin")],
        mounts=[
            nri.Mount(
                destination="/lib/hami.so", source="/lib/hami.so", type="bind", options=["rbind"]
            )
        ],
        linux=nri.LinuxContainerAdjustment(
            devices=[
                nri.LinuxDevice(
                    path="/dev/infiniband/uverbs0",
                    type="c",
                    major=231,
                    minor=192,
                    file_mode=nri.OptionalFileMode(value=0o666),
                )
            ],
            resources=nri.LinuxResources(
                cpu=nri.LinuxCPU(quota=nri.OptionalInt64(value=-1)),
                rdt_class=nri.OptionalString(value="BE"),
            ),
            oom_score_adj=nri.OptionalInt(value=-1),
        ),
    )


def test_no_limit_where_there_was_none_is_no_change() -> None:
    unlimited = container(resources=cpu(shares=2))
    assert changes.adjustment(wants(CPU_QUOTA_US=-1, MEMORY_LIMIT=-1), unlimited) is None
    assert changes.adjustment(Combined(), container()) is None


def test_an_update_is_judged_by_what_is_coming() -> None:
    stored = container(resources=cpu(shares=77, quota=20000))
    wanted = wants(CPU_SHARES=77, CPU_QUOTA_US=20000, OOM_SCORE_ADJ=5)
    # The runtime keeps what the update leaves open.
    assert changes.answer_to_update(wanted, stored, cpu(cpus="0")) is None
    found = changes.answer_to_update(wanted, stored, cpu(shares=1024, quota=50000))
    assert found == nri.ContainerUpdate(
        container_id="container1",
        linux=nri.LinuxContainerUpdate(
            resources=nri.LinuxResources(
                cpu=nri.LinuxCPU(
                    shares=nri.OptionalUInt64(value=77), quota=nri.OptionalInt64(value=20000)
                )
            )
        ),
    )
