"""One mirror looks for a server that is away, and the others follow when it answers: many ask it
for little, and not all at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

LOOK_S = 2.0
"""The most that the one mirror waits before it looks again: what depends on it is right 5 s after
an outage."""
FOLLOW_S, FOLLOW_MOST_S = 0.25, 30.0
"""How often the others look whether it has found it, and after which time they try in any case."""


async def follow(is_away: Callable[[], bool], seconds: float, clock: Callable[[], float]) -> None:
    """Wait until the server is found, or for ``seconds`` where it is there."""
    if not is_away():
        await asyncio.sleep(seconds)
        return
    until_s = clock() + FOLLOW_MOST_S * (1.0 + random.random())
    while is_away() and clock() < until_s:
        await asyncio.sleep(FOLLOW_S)
    await asyncio.sleep(random.random())
