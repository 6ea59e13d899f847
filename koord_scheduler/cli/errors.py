"""How a command ends where it cannot do what was asked."""

from __future__ import annotations


class BadInputError(Exception):
    """A file or an object that cannot be used (exit code 1). The text says which, and why."""


class WrongUseError(Exception):
    """Arguments that do not go together, or a name that does not exist (exit code 2)."""
