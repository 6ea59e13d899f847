"""Metrics pages, made anew for each scrape as long as that costs little.

A page of a large node takes tens of milliseconds and megabytes, and whoever reaches the listener
may ask in a loop. So making pages has a budget; beyond it the last page is served again, with its
age.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable

from koordlet.report import page
from koordlet.report.http import Response
from koordlet.report.metrics import Page
from koordlet.report.registry import Metrics
from koordlet.serving.listener import Pace

LINES_AT_ONCE = 500
"""Some 3 ms; a page of 600 containers is 60 ms long, and alarms must not wait for it."""
CORES = 0.05
"""CPU for pages in the long run."""
BURST_MS = 1000
"""CPU for pages at once: a few scrapers at the same time."""
ALIVE = 4
"""So many pages are held at most for clients that read them slowly."""


class Pages:
    """``refresh`` brings the numbers up to date. ``reused``: how often a page was served again."""

    def __init__(self, metrics: Metrics, refresh: Callable[[], None]) -> None:
        self._metrics = metrics
        self._refresh = refresh
        self._budget_ms = Pace(CORES * 1000, BURST_MS)
        self._making = asyncio.Lock()
        self._last: weakref.WeakValueDictionary[tuple[Page, ...], Response]
        self._last = weakref.WeakValueDictionary()
        self._kept: dict[tuple[Page, ...], Response] = {}
        """The same, while there is little left of the budget."""
        self._alive: weakref.WeakSet[Response] = weakref.WeakSet()
        self.reused = 0

    async def answer(self, *parts: Page) -> Response:
        async with self._making:
            last = self._last.get(parts)
            if last is not None and (self._budget_ms.left <= 0 or len(self._alive) >= ALIVE):
                self.reused += 1
                return last
            fresh = await self._make(parts)
            self._last[parts] = fresh
            self._alive.add(fresh)
            if self._budget_ms.left > BURST_MS / 2:
                self._kept.clear()
            else:
                self._kept[parts] = fresh
            return fresh

    async def _make(self, parts: tuple[Page, ...]) -> Response:
        spent_s = -time.thread_time()
        self._refresh()
        lines = []
        for line in page.lines(self._metrics, *parts):
            lines.append(line)
            if len(lines) % LINES_AT_ONCE == 0:
                spent_s += time.thread_time()
                await asyncio.sleep(0)
                spent_s -= time.thread_time()
        response = Response(200, page.encode(lines), page.CONTENT_TYPE)
        spent_s += time.thread_time()
        self._budget_ms.wait_s(1000 * spent_s)
        return response
