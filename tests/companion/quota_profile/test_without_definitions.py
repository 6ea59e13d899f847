"""A cluster that lacks the definitions of quotas and recommendations has its other controllers."""

from __future__ import annotations

import asyncio

from koord_scheduler.daemon.controller import Part
from koord_scheduler.daemon.parts import PARTS
from koordlet.kube.access import Need
from tests.companion.daemon.probes import HERE, MADE
from tests.companion.running import companion, definitions
from tests.kube.worlds import fake_world, until

MINE = tuple(part for part in PARTS if part.name in ("quotaprofile", "recommender"))


def test_others_run_and_these_begin_when_it_has_them() -> None:
    async def story() -> None:
        MADE.clear()
        slo = [each for each in definitions() if "slo." in each["spec"]["group"]]
        looks = Need("", "configmaps", ("list", "watch"), "the probe looks at them")
        probe = Part("probe", "manager", "", HERE + "make_probe", (looks,))
        async with fake_world(*slo) as (world, fake), companion(world, probe, *MINE) as made:
            await until(lambda: MADE[0].running)
            assert made.context.watches.unsynced() == {}
            missing = {
                "elasticquotaprofiles.quota.koordinator.sh",
                "elasticquotas.scheduling.sigs.k8s.io",
                "recommendations.analysis.koordinator.sh",
            }
            await until(lambda: made.context.watches.unsynced(missing=True).keys() == missing)
            fake.define(*definitions())
            await until(lambda: not made.context.watches.unsynced(missing=True))

    asyncio.run(story())
