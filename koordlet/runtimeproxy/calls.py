"""The calls of one link: those that run, and those that ended here a moment ago."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from koordlet.runtimeproxy.contract import Meter
from koordlet.runtimeproxy.flow import Flow
from koordlet.runtimeproxy.held import HeldCalls
from koordlet.runtimeproxy.http2.limits import Account
from koordlet.runtimeproxy.streams import Stream

_REFUSED_KEPT: Final = 256


class Calls:
    """``running``: by the number of their stream."""

    def __init__(self, meter: Meter, account: Account, flow: Flow, held: HeldCalls) -> None:
        self.running: dict[int, Stream] = {}
        self.last_stream = 0
        self.refused: deque[int] = deque(maxlen=_REFUSED_KEPT)
        """Ended here while the peers may still be speaking of them."""
        self._meter = meter
        self._account = account
        self._flow = flow
        self._held = held
        self._ended: list[tuple[int, int | None]] = []
        self._loop = asyncio.get_running_loop()
        self.idle_since = self._loop.time()
        """When the last one ended; of use while none runs."""

    def open(self, stream: Stream) -> bool:
        """Whether there may be one more."""
        if not self._account.open():
            return False
        self.running[stream.id] = stream
        return True

    def drop(self, number: int, status: int | None) -> None:
        """It has ended, for whatever reason."""
        self._flow.dropped(number)
        stream = self.running.pop(number, None)
        if stream is None:
            return
        self._account.close()
        if not self.running:
            self.idle_since = self._loop.time()
        self._meter.ended(stream.path, status)
        if stream.held is not None:
            self._held.drop(stream, stream.held, status)

    def drop_above(self, number: int) -> None:
        for each in [each for each in self.running if each > number]:
            self.drop(each, None)

    def drop_later(self, number: int, status: int | None) -> None:
        """When its client knows that it has ended, which matters more."""
        self._ended.append((number, status))

    def clear_up(self) -> None:
        """What there is to do for those that have ended."""
        if self._ended:
            for number, status in self._ended:
                self.drop(number, status)
            self._ended.clear()
        self._held.finish()

    def drop_all(self, status: int | None) -> None:
        self.clear_up()
        for number in tuple(self.running):
            self.drop(number, status)
        self._held.finish()
