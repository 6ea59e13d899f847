"""What turns one tree into another, as a JSON patch (RFC 6902)."""

from __future__ import annotations

from typing import Any


def json_patch(old: Any, new: Any) -> list[dict[str, Any]]:
    """Operations in the order in which they apply. Lists of equal length are compared element by
    element; others are replaced as a whole."""
    found: list[dict[str, Any]] = []
    _compare(old, new, "", found)
    return found


def _compare(old: Any, new: Any, path: str, found: list[dict[str, Any]]) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        gone = (key for key in old if key not in new)
        found.extend({"op": "remove", "path": f"{path}/{escaped(key)}"} for key in gone)
        for key, value in new.items():
            where = f"{path}/{escaped(key)}"
            if key in old:
                _compare(old[key], value, where, found)
            else:
                found.append({"op": "add", "path": where, "value": value})
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            _compare(before, after, f"{path}/{index}", found)
    elif type(old) is not type(new) or old != new:  # True equals 1
        found.append({"op": "replace", "path": path, "value": new})


def escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
