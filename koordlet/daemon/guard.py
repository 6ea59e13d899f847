"""Isolation of the daemon's parts: what one of them raises is shown, and ends nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger()


class Guard:
    """``problems``: name of a part -> why it does not work, until it works again."""

    def __init__(self, problems: dict[str, str]) -> None:
        self._problems = problems

    def run(self, part: str, work: Callable[[], object]) -> bool:
        """Whether ``work`` went through."""
        try:
            work()
        except Exception as error:  # the isolation boundary: one part, whatever it raised
            self._failed(part, error)
            return False
        self._worked(part)
        return True

    async def run_async(self, part: str, work: Callable[[], Awaitable[object]]) -> bool:
        try:
            await work()
        except Exception as error:  # the same boundary
            self._failed(part, error)
            return False
        self._worked(part)
        return True

    def _failed(self, part: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if self._problems.get(part) != text:
            log.error("part failed", part=part, exc_info=error)
        self._problems[part] = text

    def _worked(self, part: str) -> None:
        if self._problems.pop(part, None) is not None:
            log.info("part works again", part=part)
