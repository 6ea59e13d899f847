"""Metrics pages, made anew for each scrape as long as that costs little.

A page of a large node takes tens of milliseconds and megabytes, and whoever reaches the listener
may ask in a loop. So making pages has a budget; beyond it the last page is served again. The client
library comes with the first scrape: a node that nobody scrapes does without it.
"""

from __future__ import annotations

import asyncio
import gzip
import importlib
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from koordlet.decision.family import Page
from koordlet.report.http import Response
from koordlet.report.registry import Metrics
from koordlet.serving.listener import Pace

CORES = 0.05
"""CPU for pages in the long run."""
BURST_MS = 1000
"""CPU for pages at once: a few scrapers at the same time."""
ALIVE = 4
"""So many pages are held at most for clients that read them slowly."""
GZIP_LEVEL = 1
"""45 times smaller for 2 ms; level 9, the library's, makes it 60 times smaller for 17 ms."""


class _Form(NamedTuple):
    """What a client can be answered with: twelve forms in all, so that no client makes the pages
    that are kept grow by what it accepts."""

    parts: tuple[Page, ...]
    content_type: str
    gzip: bool


class Pages:
    """``refresh`` brings the numbers up to date, step by step. ``reused``: how often a page was
    served again."""

    def __init__(self, metrics: Metrics, refresh: Callable[[], Iterable[None]]) -> None:
        self._metrics = metrics
        self._refresh = refresh
        self._budget_ms = Pace(CORES * 1000, BURST_MS)
        self._making = asyncio.Lock()
        self._last: weakref.WeakValueDictionary[_Form, Response]
        self._last = weakref.WeakValueDictionary()
        self._kept: dict[_Form, Response] = {}
        """The same, while there is little left of the budget."""
        self._alive: weakref.WeakSet[Response] = weakref.WeakSet()
        self.reused = 0

    async def answer(self, parts: tuple[Page, ...], headers: Mapping[str, str]) -> Response:
        """``headers``: of the request, names in lower case."""
        async with self._making:
            if "koordlet.report.page" not in sys.modules:
                # That takes 50 ms, which an alarm must not wait for.
                await asyncio.to_thread(importlib.import_module, "koordlet.report.page")
            from koordlet.report import page

            form = _Form(
                parts,
                page.chosen(headers.get("accept", "")),
                page.gzip_accepted(headers.get("accept-encoding", "")),
            )
            last = self._last.get(form)
            if last is not None and (self._budget_ms.left <= 0 or len(self._alive) >= ALIVE):
                self.reused += 1
                return last
            fresh = await self._make(form)
            self._last[form] = fresh
            self._alive.add(fresh)
            if self._budget_ms.left > BURST_MS / 2:
                self._kept.clear()
            else:
                self._kept[form] = fresh
            return fresh

    async def _make(self, form: _Form) -> Response:
        from koordlet.report import page

        spent_s = -time.thread_time()
        pieces: list[bytes] = []
        written = page.render(self._metrics, page.Format(form.content_type), *form.parts)
        for piece in chain(self._refresh(), written):
            if piece is not None:
                pieces.append(piece)
            spent_s += time.thread_time()
            await asyncio.sleep(0)
            spent_s -= time.thread_time()
        body = b"".join(pieces)
        spent_s += time.thread_time()
        if form.gzip:
            # zlib lets other threads run.
            body, gzip_s = await asyncio.to_thread(_compressed, body)
            spent_s += gzip_s
        self._budget_ms.wait_s(1000 * spent_s)
        encoding = "gzip" if form.gzip else ""
        return Response(200, body, form.content_type, encoding)


def _compressed(body: bytes) -> tuple[bytes, float]:
    """And the CPU seconds it took."""
    started_s = time.thread_time()
    return gzip.compress(body, GZIP_LEVEL, mtime=0), time.thread_time() - started_s
