"""All attacks, by name."""

from __future__ import annotations

from tests.attack import daemons, disks, journals, pods, writer

ATTACKS = {module.ATTACK.name: module.ATTACK for module in (daemons, writer, disks, journals, pods)}
