"""An intercepted call: hook server, changed request, store (docs/reference/hooks.md 4.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from google.protobuf.message import DecodeError

from koordlet.decision.strategy import Stage
from koordlet.runtimeproxy.contract import Answer, Call, Question, Refusal
from koordlet.runtimeproxy.facts import copy
from koordlet.runtimeproxy.grpc_message import MAX_MESSAGE_BYTES
from koordlet.runtimeproxy.http2.headers import GRPC_OK, GRPC_UNKNOWN
from koordlet.runtimeproxy.merge import BadAnswerError
from koordlet.runtimeproxy.methods import METHODS, Message, Method
from koordlet.runtimeproxy.recover import RecoverError, Recovery
from koordlet.runtimeproxy.servers.client import AwayError, HookClient, HookError
from koordlet.runtimeproxy.servers.config import HookConfig, HookServer
from koordlet.runtimeproxy.servers.questions import InTask, Pending
from koordlet.runtimeproxy.store import Store, UnknownError
from koordlet.wire.pb import hook_pb2 as hook

MAX_SEEN_BYTES: Final = 4 << 20
"""Of one request that hooks are to see. Its arguments and variables may have 2 MiB or so on Linux
(execve(2)), and what is decoded takes many times the memory."""
MAX_SEEN_BYTES_IN_ALL: Final = 8 << 20
"""Of requests and hook requests at a time."""

_log = structlog.get_logger()

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
    seen_bytes: int = 0
    _posts: set[asyncio.Task[None]] = field(default_factory=set)

    def wants(self, path: str) -> bool:
        return path in METHODS

    def begin(self, path: str, message: bytes) -> Call:
        method = METHODS[path]
        if not self.may_see(len(message)):
            return Unseen(self, path, f"the request has {len(message)} bytes, too many to look at")
        try:
            request = method.request.FromString(message)
        except DecodeError:
            # A runtime that is less strict would run it.
            return Unseen(self, path, f"the request is no {method.request.__name__}")
        return Interception(self, path, method, message, request)

    def may_see(self, size: int) -> bool:
        return size <= MAX_SEEN_BYTES and self.seen_bytes + size <= MAX_SEEN_BYTES_IN_ALL

    def client(self, socket: str) -> HookClient:
        found = self.clients.get(socket)
        if found is None:
            found = self.clients[socket] = HookClient(socket, self.budget_s)
        return found

    def reload(self) -> None:
        """Looks for changed files; hook servers that none names any more are let go."""
        if self.config.poll():
            for socket in self.clients.keys() - self.config.sockets:
                self.clients.pop(socket).close()

    def close(self) -> None:
        for task in self._posts:
            task.cancel()
        for client in self.clients.values():
            client.close()

    def skips(self, facts: Message) -> bool:
        of_pod = type(facts) is hook.PodSandboxHookRequest
        labels = facts.labels if of_pod else facts.pod_labels
        return bool(labels.get(self.skip.key) == self.skip.value)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)


class Unseen:
    """A ``Call`` that cannot be shown to hooks: for the policy it is as if the hook had failed."""

    def __init__(self, hooks: Hooks, path: str, why: str) -> None:
        self._hooks = hooks
        self._path = path
        self._why = why

    def ask(self) -> Question | None:
        stage = METHODS[self._path].pre
        server = self._hooks.config.server_for(stage) if stage is not None else None
        if server is None:
            return None
        found = Pending()
        found.resolve(failed(self._hooks, self._path, server, HookError(self._why)))
        return found

    def ended(self, status: int | None, response: bytes | None) -> None:
        pass

    def close(self) -> None:
        pass


def failed(
    hooks: Hooks, path: str, server: HookServer, error: HookError | BadAnswerError
) -> Answer:
    """What becomes of a call whose hook has failed."""
    if server.fails:
        hooks.count(path, "refused")
        return Refusal(GRPC_UNKNOWN, f"hook server err: {error}")
    say_failed(hooks, path, error)
    return None


def say_failed(hooks: Hooks, path: str, error: HookError | BadAnswerError) -> None:
    hooks.count(path, "failed")
    if not isinstance(error, AwayError):
        _log.warning("hook_failed", method=path, error=str(error), effect="none")


class Interception:
    """A ``Call`` of the transport."""

    def __init__(
        self, hooks: Hooks, path: str, method: Method, message: bytes, request: Message
    ) -> None:
        self._hooks = hooks
        self._path = path
        self._method = method
        self._message = message
        self._request = request  # as it came, and after the merge as it is sent
        self._wish: Message | None = None
        self._facts: Message | None = None
        self._charged = 0
        self._telling = False
        self._charge(len(message))

    def ask(self) -> Question | None:
        hooks, method = self._hooks, self._method
        server = hooks.config.server_for(method.pre) if method.pre is not None else None
        if method.pre is not None and server is not None:
            return self._ask(method.pre, server)
        if method.post is not None and hooks.config.server_for(method.post) is not None:
            return self._look()
        return None

    def ended(self, status: int | None, response: bytes | None) -> None:
        if status != GRPC_OK:
            return
        try:
            answer = self._method.response.FromString(response or b"")
        except DecodeError:
            _log.warning("response_not_understood", method=self._path)
            return
        hooks, post = self._hooks, self._method.post
        try:
            self._method.keep(hooks.store, self._wished(), self._request, answer)
        except Exception as error:
            self._defect(error)
        if post is not None and self._facts is not None:
            self._telling = True
            hooks.later(self._tell(post, self._facts))

    def close(self) -> None:
        if not self._telling:
            self._release()

    def _charge(self, size: int) -> None:
        self._charged += size
        self._hooks.seen_bytes += size

    def _release(self) -> None:
        self._charge(-self._charged)

    def _look(self) -> Question | None:
        """A stopped pod may be gone from the store when its hook is told."""
        try:
            self._facts = self._known()
        except UnknownError:
            return InTask(self._look_with_patience())
        except HookError as error:
            say_failed(self._hooks, self._path, error)
        except Exception as error:
            say_failed(self._hooks, self._path, self._defect(error))
        return None

    async def _look_with_patience(self) -> Answer:
        try:
            self._facts = await self._about()
        except HookError as error:
            say_failed(self._hooks, self._path, error)
        return None

    def _ask(self, stage: Stage, server: HookServer) -> Question | None:
        """At once, where the pod is known and the hook server is connected."""
        found = Pending()

        def ended(answer: Message | HookError) -> None:
            found.resolve(self._answer(server, answer))

        try:
            facts = self._facts = self._known()
            if facts is None:
                return None
            stop = self._hooks.client(server.socket).start(stage, facts, ended)
        except UnknownError:
            stop = None
        except HookError as error:
            ended(error)
            return found
        except Exception as error:
            ended(self._defect(error))
            return found
        if stop is None:
            return InTask(self._ask_with_patience(stage, server))
        found.stop = stop
        return found

    async def _ask_with_patience(self, stage: Stage, server: HookServer) -> Answer:
        answer: Message | HookError
        try:
            facts = self._facts = self._facts or await self._about()
            if facts is None:
                return None
            answer = await self._hooks.client(server.socket).call(stage, facts)
        except HookError as error:
            answer = error
        except Exception as error:
            answer = self._defect(error)
        return self._answer(server, answer)

    def _defect(self, error: Exception) -> HookError:
        """Isolation boundary: one of ours is to the pod what a hook server that fails is."""
        _log.error("hook_handling_failed", method=self._path, exc_info=error)
        return HookError(f"{type(error).__name__}: {error}")

    def _answer(self, server: HookServer, answer: Message | HookError) -> Answer:
        """The request with what the hook changed."""
        if isinstance(answer, HookError):
            return failed(self._hooks, self._path, server, answer)
        try:
            changed = self._merged(self._facts, answer)
        except BadAnswerError as error:
            return failed(self._hooks, self._path, server, error)
        except Exception as error:
            return failed(self._hooks, self._path, server, self._defect(error))
        self._hooks.count(self._path, "unchanged" if changed is None else "changed")
        return changed

    def _wished(self) -> Message:
        return self._method.wish(self._request) if self._wish is None else self._wish

    def _merged(self, facts: Message, answer: Message) -> bytes | None:
        """Raises BadAnswerError."""
        request = self._request
        wish = self._method.wish(request)
        self._wish = None if wish is None else copy(wish)
        try:
            if not self._method.merge(request, facts, answer):
                return None
            message: bytes = request.SerializeToString()
            if len(message) > MAX_MESSAGE_BYTES:
                text = f"the changed request has {len(message)} bytes; CRI takes 16 MiB"
                raise BadAnswerError(text)
        except Exception:
            self._request = self._method.request.FromString(self._message)
            raise
        return message

    async def _tell(self, stage: Stage, facts: Message) -> None:
        try:
            server = self._hooks.config.server_for(stage)
            if server is not None:
                await self._hooks.client(server.socket).call(stage, facts)
        except HookError as error:
            say_failed(self._hooks, self._path, error)
        finally:
            self._release()

    def _known(self) -> Message | None:
        """The hook request, or None: nobody is to hear of this call. Raises UnknownError and
        HookError."""
        facts = self._method.about(self._request, self._hooks.store)
        if facts is None or self._hooks.skips(facts):
            return None
        size = facts.ByteSize()
        if not self._hooks.may_see(size):
            raise HookError("too many bytes of requests wait for hooks already")
        self._charge(size)
        return facts

    async def _about(self) -> Message | None:
        """The same, of a pod that the runtime may know. Raises HookError."""
        for last in (False, False, True):  # a container, then its pod, may be missing
            try:
                return self._known()
            except UnknownError as unknown:
                if last or not await self._recovered(unknown):
                    return None
        return None

    async def _recovered(self, unknown: UnknownError) -> bool:
        recovery = self._hooks.recovery
        recover = recovery.pod if unknown.kind == "pod" else recovery.container
        try:
            await asyncio.wait_for(recover(unknown.id), self._hooks.budget_s)
        except (RecoverError, TimeoutError) as error:
            _log.warning(
                "unknown_passes_without_hooks",
                method=self._path,
                unknown=str(unknown),
                error=str(error) or "the runtime did not answer in time",
            )
            return False
        return True
