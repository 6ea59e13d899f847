"""What is wrong with a document, and where."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """One refused field.

    ``path`` is a JSON path (``$.blocks[0].ioCfg.readIOPS``), empty for a bare value.
    ``nearest`` is the valid name that looks most like the one given, empty when none does.
    """

    path: str
    message: str
    nearest: str = ""

    @property
    def reason(self) -> str:
        """The message, with the suggestion where there is one."""
        if not self.nearest:
            return self.message
        return f'{self.message} (did you mean "{self.nearest}"?)'

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class ProtocolError(ValueError):
    """A value or document that does not follow the protocol.

    ``problems`` holds every fault found, ``path`` and ``message`` those of the first.
    """

    def __init__(self, problems: tuple[Problem, ...] | Problem | str) -> None:
        if isinstance(problems, str):
            problems = Problem("", problems)
        if isinstance(problems, Problem):
            problems = (problems,)
        self.problems = problems
        self.path = problems[0].path
        self.message = problems[0].message
        super().__init__("; ".join(map(str, problems)))


class AnnotationError(ProtocolError):
    """A label or annotation whose value was refused. ``key`` is its full name."""

    def __init__(self, key: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(problems)
        self.key = key

    def __str__(self) -> str:
        return f"{self.key}: {super().__str__()}"


def join(path: str, key: str | int) -> str:
    """``$`` + ``blocks`` + ``0`` -> ``$.blocks[0]``; unusual keys are quoted: ``$["a.b"]``."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if key and key.replace("_", "a").replace("-", "a").isalnum():
        return f"{path}.{key}" if path else key
    quoted = '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{path}[{quoted}]"
