"""An intercepted call: hook server, changed request, store (spec/hooks.md 4.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog
from google.protobuf.message import DecodeError

from koordlet.decision.strategy import Stage
from koordlet.runtimeproxy.contract import Refusal
from koordlet.runtimeproxy.grpc_message import MAX_MESSAGE_BYTES
from koordlet.runtimeproxy.headers import GRPC_OK, GRPC_UNKNOWN
from koordlet.runtimeproxy.hook_client import AwayError, HookClient, HookError
from koordlet.runtimeproxy.hook_config import HookConfig
from koordlet.runtimeproxy.merge import BadAnswerError
from koordlet.runtimeproxy.methods import METHODS, Message, Method
from koordlet.runtimeproxy.recover import RecoverError, Recovery
from koordlet.runtimeproxy.store import Store, UnknownError

HookMeter = Callable[[str, str], None]
"""(method path, what happened: changed, unchanged, failed, refused)."""


@dataclass(frozen=True)
class SkipLabel:
    """Pods with this label, and their containers, pass without hooks."""

    key: str
    value: str


@dataclass
class Hooks:
    """The interceptor of the links."""

    config: HookConfig
    store: Store
    recovery: Recovery
    skip: SkipLabel
    budget_s: float
    count: HookMeter
    clients: dict[str, HookClient] = field(default_factory=dict)
    _posts: set[asyncio.Task[None]] = field(default_factory=set)

    def wants(self, path: str) -> bool:
        return path in METHODS

    def begin(self, path: str, message: bytes) -> Interception | None:
        method = METHODS[path]
        try:
            request = method.request.FromString(message)
        except DecodeError:  # the runtime will say so
            return None
        return Interception(self, path, method, message, request)

    def client(self, socket: str) -> HookClient:
        found = self.clients.get(socket)
        if found is None:
            found = self.clients[socket] = HookClient(socket, self.budget_s)
        return found

    async def reload(self) -> None:
        """Looks for changed files; hook servers that none names any more are let go."""
        if self.config.poll():
            for socket in self.clients.keys() - self.config.sockets:
                await self.clients.pop(socket).close()

    async def close(self) -> None:
        for task in self._posts:
            task.cancel()
        for client in self.clients.values():
            await client.close()

    def skips(self, facts: Message) -> bool:
        labels = facts.pod_labels if hasattr(facts, "pod_labels") else facts.labels
        return bool(labels.get(self.skip.key) == self.skip.value)

    def later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)


class Interception:
    """A ``Call`` of the transport."""

    def __init__(
        self, hooks: Hooks, path: str, method: Method, message: bytes, request: Message
    ) -> None:
        self._hooks = hooks
        self._path = path
        self._method = method
        self._message = message
        self._asked = self._sent = request
        self._facts: Message | None = None
        self._log = structlog.get_logger()

    def ask(self) -> Awaitable[bytes | Refusal | None] | None:
        hooks, method = self._hooks, self._method
        if method.pre is not None and hooks.config.server_for(method.pre) is not None:
            return self._ask(method.pre)
        if method.post is not None and hooks.config.server_for(method.post) is not None:
            # A stopped pod may be gone from the store when its hook is told.
            return self._look()
        return None

    def ended(self, status: int | None, response: bytes | None) -> None:
        if status != GRPC_OK:
            return
        try:
            answer = self._method.response.FromString(response or b"")
        except DecodeError:
            self._log.warning("response_not_understood", method=self._path)
            return
        hooks, post = self._hooks, self._method.post
        self._method.keep(hooks.store, self._asked, self._sent, answer)
        if post is not None and self._facts is not None:
            hooks.later(self._tell(post, self._facts))

    async def _look(self) -> None:
        self._facts = await self._about()

    async def _ask(self, stage: Stage) -> bytes | Refusal | None:
        """The hook's answer in the request; what it changed or None."""
        facts = self._facts = await self._about()
        server = self._hooks.config.server_for(stage)
        if facts is None or server is None:
            return None
        try:
            answer = await self._hooks.client(server.socket).call(stage, facts)
            changed = self._merged(facts, answer)
        except (HookError, BadAnswerError) as error:
            if server.fails:
                self._hooks.count(self._path, "refused")
                return Refusal(GRPC_UNKNOWN, f"hook server err: {error}")
            self._failed(error)
            return None
        self._hooks.count(self._path, "unchanged" if changed is None else "changed")
        return changed

    def _merged(self, facts: Message, answer: Message) -> bytes | None:
        """Raises BadAnswerError."""
        sent = self._method.request.FromString(self._message)
        if not self._method.merge(sent, facts, answer):
            return None
        message: bytes = sent.SerializeToString()
        if len(message) > MAX_MESSAGE_BYTES:
            raise BadAnswerError(f"the changed request has {len(message)} bytes; CRI takes 16 MiB")
        self._sent = sent
        return message

    async def _tell(self, stage: Stage, facts: Message) -> None:
        server = self._hooks.config.server_for(stage)
        if server is None:
            return
        try:
            await self._hooks.client(server.socket).call(stage, facts)
        except HookError as error:
            self._failed(error)

    def _failed(self, error: HookError | BadAnswerError) -> None:
        self._hooks.count(self._path, "failed")
        if not isinstance(error, AwayError):
            self._log.warning("hook_failed", method=self._path, error=str(error), effect="none")

    async def _about(self) -> Message | None:
        """The hook request, or None: nobody is to be told of this call."""
        for last in (False, False, True):  # a container, then its pod, may be missing
            try:
                facts = self._method.about(self._asked, self._hooks.store)
            except UnknownError as unknown:
                if last or not await self._recovered(unknown):
                    return None
            else:
                return None if facts is None or self._hooks.skips(facts) else _copy(facts)
        return None

    async def _recovered(self, unknown: UnknownError) -> bool:
        recovery = self._hooks.recovery
        recover = recovery.pod if unknown.kind == "pod" else recovery.container
        try:
            await asyncio.wait_for(recover(unknown.id), self._hooks.budget_s)
        except (RecoverError, TimeoutError) as error:
            self._log.warning(
                "unknown_passes_without_hooks",
                method=self._path,
                unknown=str(unknown),
                error=str(error) or "the runtime did not answer in time",
            )
            return False
        return True


def _copy(message: Message) -> Message:
    """What the store has may change while a hook is asked."""
    found = type(message)()
    found.CopyFrom(message)
    return found
