"""Whose process it is."""

from __future__ import annotations

import pytest

from koordlet.collectors.devices.owners import SYSTEM, Owner, owner_of, owners
from koordlet.decision.devices import UserKind
from koordlet.decision.snapshot import Application, Container, Pod
from koordlet.protocol.qos import KubeQoS, QoSClass

POD = Pod(
    uid="u1",
    cgroup="kubepods/podu1",
    kube_qos=KubeQoS.BURSTABLE,
    containers=(Container("c1", "kubepods/podu1/c1"), Container("c10", "kubepods/podu1/c10")),
)
KNOWN = owners(
    (POD,),
    (
        Application("train", "train.slice", QoSClass.BE),
        Application("inner", "kubepods/podu1/c1/inner", QoSClass.LS),
        Application("outer", "kubepods", QoSClass.LS),
    ),
)
C1, C10 = Owner(UserKind.CONTAINER, "c1", "u1"), Owner(UserKind.CONTAINER, "c10", "u1")
IN_POD = Owner(UserKind.POD, "u1", "u1")


@pytest.mark.parametrize(
    ("paths", "wanted"),
    [
        (("kubepods/podu1/c1",), C1),
        (("kubepods/podu1/c1/a/b/c",), C1),  # systemd inside a container
        (("kubepods/podu1/c10",), C10),
        (("kubepods/podu1/c100",), IN_POD),
        (("kubepods/podu1/sandbox",), IN_POD),
        (("kubepods/podu2/c1",), Owner(UserKind.APPLICATION, "outer")),
        (("kubepods/podu1/c1/inner",), Owner(UserKind.APPLICATION, "inner")),
        (("train.slice/x.scope",), Owner(UserKind.APPLICATION, "train")),
        (("train.slicer",), SYSTEM),
        # On v1 a process may be known in one hierarchy alone.
        (("", "user.slice", "kubepods/podu1/c1"), C1),
        (("kubepods", "kubepods/podu1/c1"), C1),
        (("",), SYSTEM),
        ((), SYSTEM),
    ],
)
def test_the_innermost_that_is_known(paths: tuple[str, ...], wanted: Owner) -> None:
    assert owner_of(frozenset(paths), KNOWN) == wanted
