"""A few cycles of each attack; ``make attack`` plays them for an hour."""

from __future__ import annotations

import pytest

from tests.attack.attack import Attack, run
from tests.attack.attacks import ATTACKS

CYCLES = {
    "daemons": 5,
    "writer": 40,
    "disks": 4,
    "journals": 2,
    "pods": 2,
    "webhook": 1,
    "apiserver": 3,
    "tenants": 1,
    "central": 2,
    "overcommit": 2,
}
MARKS = {
    **dict.fromkeys(("daemons", "writer", "disks"), pytest.mark.kernel),
    # Even CPU seconds grow by a half where others take the caches: once more, and listed.
    "tenants": pytest.mark.flaky(reruns=1),
}
SEED = 1


@pytest.mark.parametrize(
    "attack",
    [pytest.param(each, marks=MARKS.get(each.name, ())) for each in ATTACKS.values()],
    ids=ATTACKS,
)
def test_it_holds(attack: Attack) -> None:
    if why := attack.lacks():
        pytest.skip(why)
    counts = run(attack, SEED, iter(range(CYCLES[attack.name])))
    print("\n".join(f"{number:9} {what}" for what, number in sorted(counts.items())))
    assert counts.total()
