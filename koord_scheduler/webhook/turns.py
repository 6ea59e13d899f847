"""Turns at work that strangers ask for: fair by what each has cost, small work before large."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

HALVED_EVERY_S = 1.0
"""What somebody cost is forgotten by halves."""
_FORGOTTEN_S = 1e-4


class Peer(NamedTuple):
    """Somebody at the other end of a connection. ``first``: has shown a certificate for which
    everybody else waits."""

    address: str
    first: bool = False


class _Waiter(NamedTuple):
    peer: Peer
    size_bytes: int
    number: int
    turn: asyncio.Future[None]


class Turns:
    """At most ``width`` at once. Next is whoever goes first, then whose address has cost least,
    then the smallest, then the oldest: from one address too, small work never waits for large.

    Nobody gets a turn before the event loop has heard of everybody who wants one.
    """

    def __init__(self, width: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._free, self._clock = width, clock
        self._waiting: list[_Waiter] = []
        self._spent_s: dict[str, float] = {}
        self._halved_s = clock()
        self._number = 0
        self._looks = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def take(self, peer: Peer, size_bytes: int = 0) -> None:
        """Wait for a turn; ``give`` ends it."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._number += 1
        waiter = _Waiter(peer, size_bytes, self._number, turn)
        self._waiting.append(waiter)
        self._look_later()
        try:
            await turn
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            else:
                self.give(peer, 0.0)
            raise

    def give(self, peer: Peer, spent_s: float) -> None:
        """End a turn that took ``spent_s`` of CPU."""
        self._free += 1
        self._forget()
        self._spent_s[peer.address] = self._spent_s.get(peer.address, 0.0) + spent_s
        self._look_later()

    def _look_later(self) -> None:
        if self._waiting and self._free and not self._looks:
            self._looks = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._looks = False
        while self._waiting and self._free:
            best = min(self._waiting, key=self._order)
            self._waiting.remove(best)
            if not best.turn.done():
                self._free -= 1
                best.turn.set_result(None)

    def _order(self, waiter: _Waiter) -> tuple[bool, float, int, int]:
        peer = waiter.peer
        spent_s = self._spent_s.get(peer.address, 0.0)
        return not peer.first, spent_s, waiter.size_bytes, waiter.number

    def _forget(self) -> None:
        now_s = self._clock()
        if now_s - self._halved_s >= HALVED_EVERY_S:
            self._halved_s = now_s
            halves = ((address, spent / 2) for address, spent in self._spent_s.items())
            self._spent_s = {address: spent for address, spent in halves if spent > _FORGOTTEN_S}
