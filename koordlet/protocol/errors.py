"""What is wrong with a document, and where."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from koordlet.protocol import limits


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


class Refused:
    """The paths of what was refused, in any letter case: a rule between fields means nothing
    where one of them could not be read."""

    def __init__(self, problems: Iterable[Problem] = ()) -> None:
        self._paths = {problem.path.lower() for problem in problems}

    def __contains__(self, path: str) -> bool:
        """Whether the field, a part of it, or something around it was refused."""
        field = path.lower()
        return any(
            field == refused or _is_inside(field, refused) or _is_inside(refused, field)
            for refused in self._paths
        )


NOTHING = Refused()


def _is_inside(path: str, around: str) -> bool:
    return path.startswith(around) and path[len(around) :][:1] in (".", "[")


def join(path: str, key: str | int) -> str:
    """``$`` + ``blocks`` + ``0`` -> ``$.blocks[0]``; unusual keys are quoted: ``$["a.b"]``, and
    long ones cut."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if len(key) > limits.KEY_CHARACTERS_SHOWN:
        key = f"{key[: limits.KEY_CHARACTERS_SHOWN]}..."
    if key and key.replace("_", "a").replace("-", "a").isalnum():
        return f"{path}.{key}" if path else key
    quoted = '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{path}[{quoted}]"
