"""JSON merge patches (RFC 7386), and what became of one."""

from __future__ import annotations

from collections.abc import Iterator

from koord_scheduler.model.wire import Tree


def merge_patch(present: Tree, wanted: Tree) -> Tree:
    """The patch that makes ``wanted`` of ``present``; empty where they are equal."""
    patch: Tree = {key: None for key in present if key not in wanted}
    for key, value in wanted.items():
        before = present.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            if inner := merge_patch(before, value):
                patch[key] = inner
        elif key not in present or before != value:
            patch[key] = value
    return patch


def dropped(sent: Tree, stored: Tree, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that were sent and are not there: the server drops those that the
    definition of the kind does not have."""
    for key, value in sent.items():
        here = f"{path}.{key}" if path else key
        if value is None:
            continue
        if key not in stored:
            yield here
        elif isinstance(value, dict) and isinstance(inner := stored[key], dict):
            yield from dropped(value, inner, here)
