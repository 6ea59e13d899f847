"""JSON merge patches (RFC 7386)."""

from __future__ import annotations

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
