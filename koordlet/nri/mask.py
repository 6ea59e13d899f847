"""Events of NRI: their numbers and names, and which of them the plugin subscribes to."""

from __future__ import annotations

from typing import Any

EVENTS = {
    "RunPodSandbox": 1,
    "StopPodSandbox": 2,
    "RemovePodSandbox": 3,
    "CreateContainer": 4,
    "PostCreateContainer": 5,
    "StartContainer": 6,
    "PostStartContainer": 7,
    "UpdateContainer": 8,
    "PostUpdateContainer": 9,
    "StopContainer": 10,
    "RemoveContainer": 11,
}
"""Those that every runtime knows. One that an older runtime does not know would end the session
(docs/reference/wire.md 2.3)."""
UPDATE_POD_SANDBOX = 12
"""A pod is resized as a whole; see ``versions.tells_pod_updates``."""

NAMES = {number: name for name, number in EVENTS.items()}


class MaskError(ValueError):
    """The configuration that the runtime handed over is not one of ours."""


def mask(*numbers: int) -> int:
    return sum(1 << (number - 1) for number in set(numbers))


DEFAULT_MASK = mask(
    *(
        EVENTS[name]
        for name in (
            "RunPodSandbox",
            "StopPodSandbox",
            "RemovePodSandbox",
            "CreateContainer",
            "StartContainer",
            "UpdateContainer",
            "StopContainer",
            "RemoveContainer",
        )
    )
)

_GROUPS = {"all": "", "pod": "pod", "podsandbox": "pod", "container": "container"}
"""Name of a group -> what the names of its events contain."""


def configured_mask(text: str) -> int:
    """The mask for a configuration from the runtime's drop-in file: YAML whose list ``events``
    replaces ours; nothing, or no such key, keeps it. Raises MaskError."""
    if not text.strip():
        return DEFAULT_MASK
    import yaml

    try:
        document: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise MaskError(f"the plugin's configuration is no YAML: {error}") from None
    if document is None:
        return DEFAULT_MASK
    if not isinstance(document, dict):
        raise MaskError(f"the plugin's configuration is {type(document).__name__}, not a mapping")
    names = document.get("events")
    if not names:
        return DEFAULT_MASK
    if not isinstance(names, list):
        raise MaskError("events must be a list of names such as RunPodSandbox")
    return mask(*(number for name in names for number in _numbers(name)))


def _numbers(name: object) -> list[int]:
    wanted = str(name).lower().replace("_", "")
    if wanted in _GROUPS:
        return [n for known, n in EVENTS.items() if _GROUPS[wanted] in known.lower()]
    for known, number in EVENTS.items():
        if known.lower() == wanted:
            return [number]
    raise MaskError(
        f"events: {str(name)[:64]!r} is none of {', '.join(EVENTS)}, all, pod, container"
    )
