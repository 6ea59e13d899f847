"""Label and field selectors as they stand in a URL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fakekube.answers import ApiError

Term = Callable[[str | None], bool]


@dataclass(frozen=True)
class Selector:
    fields: tuple[tuple[str, Term], ...] = ()
    labels: tuple[tuple[str, Term], ...] = ()

    def matches(self, tree: dict[str, Any]) -> bool:
        labels = tree["metadata"].get("labels") or {}
        return all(term(_field(tree, path)) for path, term in self.fields) and all(
            term(labels.get(key)) for key, term in self.labels
        )


def parse(fields: str, labels: str) -> Selector:
    return Selector(_terms(fields), _terms(labels))


def _terms(text: str) -> tuple[tuple[str, Term], ...]:
    return tuple(_term(part) for part in text.split(",") if part)


def _term(part: str) -> tuple[str, Term]:
    for sign in ("!=", "==", "="):
        key, found, value = part.partition(sign)
        if found and sign == "!=":
            return key, lambda has, want=value: has != want  # type: ignore[misc]
        if found:
            return key, lambda has, want=value: (has or "") == want  # type: ignore[misc]
    if not all(c.isalnum() or c in "./-_!" for c in part):
        raise ApiError(400, "BadRequest", f"unable to parse requirement: {part}")
    if part.startswith("!"):
        return part[1:], lambda has: has is None
    return part, lambda has: has is not None


def _field(tree: dict[str, Any], path: str) -> str:
    value: Any = tree
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)
