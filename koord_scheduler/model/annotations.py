"""What annotations a pod can have. The API server checks them on every write but a Binding, which
it merges into the pod as it is; a pod beyond the limits can never be written to again, not even its
status."""

from __future__ import annotations

import re
from collections.abc import Mapping

from koordlet.protocol import keys

MOST_BYTES = 256 << 10
"""Names and values of all annotations of an object together, as the API server counts them."""
RESERVATION_ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
GIVEN = (keys.RESOURCE_STATUS.name, keys.DEVICE_ALLOCATED.name, RESERVATION_ALLOCATED)
"""Written when a pod gets its node. On one without a node they were copied from another pod."""
NAME = "Annotations"
"""``Failure.refused_by`` of a pod that has no room for those of its binding."""
_MOST_PREFIX, _MOST_NAME = 253, 63
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_NAME = re.compile(r"[a-z0-9]([-\w.]*[a-z0-9])?", re.ASCII)
_MOST_SHOWN = 80


def bytes_of(annotations: Mapping[str, str]) -> int:
    if not annotations:
        return 0
    return sum(_size(name) + _size(text) for name, text in annotations.items())


def unbearable(there: Mapping[str, str], there_bytes: int, added: Mapping[str, str]) -> str:
    """Why a Binding must not add these annotations to a pod that has ``there`` among others, of
    ``there_bytes`` together; empty where it may."""
    for name, text in added.items():
        if not _is_name(name):
            return f"the binding would add an annotation with a bad name: {name[:_MOST_SHOWN]!r}"
        if not isinstance(text, str) or not _is_text(text):
            return f"the binding would add annotation {name}, whose value is no text"
    replaced = {name: there[name] for name in added if name in there}
    total = there_bytes - bytes_of(replaced) + bytes_of(added)
    if total <= MOST_BYTES:
        return ""
    return (
        f"annotations of the pod ({there_bytes} bytes) with those of its binding would take "
        f"{total} bytes, of which {MOST_BYTES} are allowed: remove some"
    )


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _is_name(text: str) -> bool:
    prefix, slash, name = text.lower().rpartition("/")
    if slash and not (len(prefix) <= _MOST_PREFIX and _PREFIX.fullmatch(prefix)):
        return False
    return len(name) <= _MOST_NAME and _NAME.fullmatch(name) is not None


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
