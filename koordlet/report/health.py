"""What the HTTP server answers: the three pages, alive, ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from koordlet.decision.family import Page
from koordlet.report.http import Handler, Response
from koordlet.report.pages import Pages

TEXT = "text/plain; charset=utf-8"
HEALTH_PATHS = ("/healthz", "/readyz")


@dataclass(frozen=True)
class Health:
    """``tick_age_s``: seconds since the last tick ended, or since the start before the first;
    alive means it is at most ``limit_s``. ``not_ready``: reasons, empty when ready. ``notes``:
    what is wrong and costs no readiness."""

    tick_age_s: float
    limit_s: float
    not_ready: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def routes(pages: Pages, health: Callable[[], Health]) -> dict[str, Handler]:
    """Path -> handler. ``/metrics`` is the internal page followed by the external one."""
    return {
        "/metrics": partial(pages.answer, (Page.INTERNAL, Page.EXTERNAL)),
        "/internal-metrics": partial(pages.answer, (Page.INTERNAL,)),
        "/external-metrics": partial(pages.answer, (Page.EXTERNAL,)),
        "/healthz": partial(_alive, health),
        "/readyz": partial(_ready, health),
    }


async def _alive(ask: Callable[[], Health], _headers: Mapping[str, str]) -> Response:
    health = ask()
    if health.tick_age_s <= health.limit_s:
        return Response(200, b"ok\n", TEXT)
    text = f"the last tick ended {health.tick_age_s:.1f} s ago, allowed are {health.limit_s:g} s\n"
    return Response(503, text.encode(), TEXT)


async def _ready(ask: Callable[[], Health], _headers: Mapping[str, str]) -> Response:
    health = ask()
    found: dict[str, Any] = {"ready": not health.not_ready, "reasons": health.not_ready}
    if health.notes:
        found["notes"] = health.notes
    body = msgspec.json.encode(found)
    return Response(503 if health.not_ready else 200, body + b"\n", "application/json")
