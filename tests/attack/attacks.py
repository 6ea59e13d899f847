"""All attacks, by name."""

from __future__ import annotations

from tests.attack import apiserver, daemons, disks, journals, pods, webhook, writer

MODULES = (daemons, writer, disks, journals, pods, webhook, apiserver)
ATTACKS = {module.ATTACK.name: module.ATTACK for module in MODULES}
