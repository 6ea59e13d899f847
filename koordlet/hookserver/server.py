"""The hook API on a socket for root alone: gRPC, which is imported when somebody speaks it, and
koordlet's own line.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

import msgspec

from koordlet.decision.answer import Ask
from koordlet.hookserver.calls import HookServerStatus
from koordlet.hookserver.requested import Requested
from koordlet.serving.door import Backend, Door, Own
from koordlet.serving.unix_socket import HOOKS_DIR, Access
from koordlet.wire import hook_line

if TYPE_CHECKING:
    from koordlet.hookserver.answers import Answers


class HookServer(Door):
    """``runtime``: scheme of the container ids behind the proxy, where nothing tells it.
    ``requested``: what kubelet asked for before."""

    def __init__(
        self,
        ask: Ask,
        path: str,
        runtime: str = "containerd",
        requested: Requested | None = None,
    ) -> None:
        self._ask = ask
        self._requested = requested or Requested()
        self._runtime = runtime
        self._answers: Answers | None = None
        super().__init__(
            path,
            self._start_service,
            private=HOOKS_DIR,
            group=None,
            own=Own(hook_line.GREETING, self._serve_line),
        )

    def status(self) -> HookServerStatus:
        answers = self._answers
        return HookServerStatus(
            stages=tuple(msgspec.structs.replace(each) for each in answers.stages.values())
            if answers is not None
            else (),
            lost=dict(answers.lost) if answers is not None else {},
            refused=dict(self.refused),
        )

    async def _start_service(self, access: Access, private_path: str) -> Backend:
        # In a thread: importing grpc takes a good part of a second of a busy machine.
        service = await asyncio.to_thread(importlib.import_module, "koordlet.hookserver.service")
        backend: Backend = await service.start(await self._answering(), private_path)
        return backend

    async def _serve_line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(hook_line.GREETING)  # at once: what is imported now takes a while
        line = await asyncio.to_thread(importlib.import_module, "koordlet.hookserver.line")
        await line.serve(await self._answering(), reader, writer)

    async def _answering(self) -> Answers:
        """One for both ways to ask."""
        module = await asyncio.to_thread(importlib.import_module, "koordlet.hookserver.answers")
        if self._answers is None:
            self._answers = module.Answers(self._ask, self._runtime, requested=self._requested)
        return self._answers
