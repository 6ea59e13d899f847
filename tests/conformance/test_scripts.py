"""The fake kernel answers like the real one: the same scripts on both."""

from __future__ import annotations

import pytest

from tests.conformance.runner import Script, Site, run
from tests.conformance.scripts_v1 import V1
from tests.conformance.scripts_v2 import UNIFIED, V2


@pytest.mark.kernel
@pytest.mark.parametrize("script", (*V1, *UNIFIED, *V2), ids=lambda script: script.name)
def test_same_answers(script: Script, real: Site, fake: Site) -> None:
    missing = [place for place in script.needs if place not in real.places]
    if missing:
        pytest.skip(f"not mounted here: {', '.join(missing)}")
    wanted = run(real, script.steps)
    got = run(fake, script.steps)
    rows = zip(script.steps, wanted, got, strict=True)
    different = [
        f"{s.op} {s.path} = {s.data!r}: kernel {w}, fake {g}" for s, w, g in rows if w != g
    ]
    assert not different, "\n".join(different)


@pytest.mark.kernel
def test_the_fake_shows_no_file_the_kernel_lacks(real: Site, fake: Site) -> None:
    for place, directory in real.places.items():
        shown = set(fake.host.listdir(fake.places[place]))
        assert shown <= set(real.host.listdir(directory)), place
