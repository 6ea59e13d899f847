"""Which events the plugin subscribes to."""

from __future__ import annotations

import pytest

from koordlet.nri.mask import DEFAULT_MASK, EVENTS, MaskError, configured_mask, mask


@pytest.mark.parametrize("text", ["", "  \n", "# nothing\n", "{}", "events: []", "other: 1"])
def test_no_configuration_keeps_ours(text: str) -> None:
    assert configured_mask(text) == DEFAULT_MASK


def test_ours_has_what_the_reference_has_and_no_bit_that_old_runtimes_refuse() -> None:
    assert DEFAULT_MASK & 0x8D == 0x8D
    assert DEFAULT_MASK < 1 << 11


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("[RunPodSandbox, createcontainer]", mask(1, 4)),
        ("[RUN_POD_SANDBOX]", mask(1)),
        ("[RunPodSandbox, RunPodSandbox]", mask(1)),
        ("[all]", (1 << 11) - 1),
        ("[pod]", mask(1, 2, 3)),
        ("[PodSandbox]", mask(1, 2, 3)),
        ("[container]", mask(*(n for e, n in EVENTS.items() if "Container" in e))),
    ],
)
def test_events_replace_ours(names: str, expected: int) -> None:
    assert configured_mask(f"events: {names}") == expected


@pytest.mark.parametrize(
    "text",
    ["events: [Nonsense]", "events: RunPodSandbox", "[1, 2]", "events: [", "events: [12]"],
)
def test_what_is_wrong_is_refused(text: str) -> None:
    with pytest.raises(MaskError):
        configured_mask(text)
