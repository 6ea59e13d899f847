"""All attacks, by name."""

from __future__ import annotations

from tests.attack import (
    apiserver,
    central,
    daemons,
    disks,
    journals,
    overcommit,
    pods,
    tenants,
    webhook,
    writer,
)

MODULES = (daemons, writer, disks, journals, pods, tenants, webhook, apiserver, central, overcommit)
ATTACKS = {module.ATTACK.name: module.ATTACK for module in MODULES}
