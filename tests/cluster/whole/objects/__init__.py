"""Manifests, with ``${NAME}`` where one run differs from another."""

from __future__ import annotations

import string
from pathlib import Path


def manifest(name: str, **values: object) -> str:
    """Raises KeyError where a value is missing."""
    text = (Path(__file__).parent / f"{name}.yaml").read_text()
    return string.Template(text).substitute({key: str(value) for key, value in values.items()})
