"""The fake API server over HTTP on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from tests.fakekube.access import Access
from tests.fakekube.answers import ApiError, conflict
from tests.fakekube.crd import resource_of
from tests.fakekube.eviction import allowed
from tests.fakekube.faults import Fault, Faults
from tests.fakekube.resources import BUILT_IN, Resource
from tests.fakekube.selectors import Selector, parse
from tests.fakekube.store import Logged, Name, Store

Tree = dict[str, Any]
_APPLY = "application/apply-patch+yaml"
"""Server-side apply: here a merge, and a create where there is none; nobody owns fields."""
_KIND = "x-kubernetes-group-version-kind"
RUNNING: dict[str, FakeKube] = {}
"""By URL."""


class FakeKube:
    """``url`` is where it listens. ``store`` and ``faults`` are for tests to look and to break,
    ``access`` is for accounts that may not do everything."""

    def __init__(self) -> None:
        self.now = datetime.datetime.now(datetime.UTC)
        self.store = Store(lambda: self.now.strftime("%Y-%m-%dT%H:%M:%SZ"))
        self.faults = Faults()
        self.access = Access()
        self.requests: Counter[str] = Counter()
        """``METHOD PATH`` without the query -> how often; of watches, ``WATCH PATH``."""
        self.bookmarks: set[asyncio.Event] = set()
        self.url = ""
        self._resources = {(r.group, r.version, r.plural): r for r in BUILT_IN}
        self._versions: set[asyncio.Event] = set()
        self.store.on_write = self._wake

    def define(self, *definitions: Tree) -> None:
        """Serves custom resources, as after ``kubectl apply`` of their definitions."""
        for definition in definitions:
            resource, schema = resource_of(definition)
            self._resources[(resource.group, resource.version, resource.plural)] = resource
            self.store.schemas[resource] = schema

    def resource(self, plural: str) -> Resource:
        return next(r for r in self._resources.values() if r.plural == plural)

    def bookmark(self) -> None:
        """Sends one to every watch that takes them."""
        for each in tuple(self.bookmarks):
            each.set()
        self._wake()

    def _wake(self) -> None:
        for each in tuple(self._versions):
            each.set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        what = f"{request.method} {request.path}"
        if self.faults.down:
            return _closed(request)
        watch = request.query.get("watch") in ("1", "true")
        self.requests[f"WATCH {request.path}" if watch else what] += 1
        breaks = self.faults.breaks
        if breaks is not None and (broken := await breaks(request)) is not None:
            return broken
        fault = self.faults.take(f"WATCH {request.path}" if watch else what)
        if fault is not None and fault.before_s:
            await asyncio.sleep(fault.before_s)
        try:
            self._admit(request, fault)
            answer = await self._answer(request, watch)
        except ApiError as error:
            answer = _refusal(error)
        return await _faulty(request, answer, fault)

    def _admit(self, request: web.Request, fault: Fault | None) -> None:
        if fault is not None and fault.status:
            raise ApiError(fault.status, "", "a fault of the test", fault.retry_after_s)
        token = self.faults.token
        if token and request.headers.get("Authorization") != f"Bearer {token}":
            raise ApiError(401, "Unauthorized", "Unauthorized")
        self.access.admit(request)

    async def _answer(self, request: web.Request, watch: bool) -> web.StreamResponse:
        if request.path in ("/readyz", "/livez"):
            return web.Response(text="ok")
        if request.path == "/version":
            return web.json_response({"major": "1", "minor": "37", "gitVersion": "v1.37.0-fake"})
        if (found := self._discovered(request.path)) is not None:
            return web.json_response({"kind": "APIResourceList", "resources": found})
        if (schemas := self._schemas(request.path)) is not None:
            return web.json_response({"openapi": "3.0.0", "components": {"schemas": schemas}})
        resource, name, subresource = self._target(request.path)
        if watch:
            return await self._watch(request, resource, name[0])
        body: Tree = {}
        if request.can_read_body:
            try:
                body = json.loads(await request.read())
            except ValueError:
                raise ApiError(400, "BadRequest", "the body is not JSON") from None
        if request.method in ("POST", "PUT") and resource in self.store.schemas:
            for key in ("kind", "apiVersion"):
                if not body.get(key):
                    text = f"the object provided is unrecognized: Object {key!r} is missing"
                    raise ApiError(400, "BadRequest", text)
        return self._do(request, resource, name, subresource, body)

    def _discovered(self, path: str) -> list[Tree] | None:
        """The kinds of a version; None where the path is another."""
        return [
            {"name": each.plural, "kind": each.kind, "namespaced": each.namespaced}
            for each in self._resources.values()
            if path == f"/api{'s' if each.group else ''}/{each.api_version}"
        ] or None

    def _schemas(self, path: str) -> Tree | None:
        """The schemas of a version's custom resources; None where the path is another."""
        if not path.startswith("/openapi/v3/apis/"):
            return None
        return {
            each.kind: schema.tree
            | {_KIND: [{"group": each.group, "version": each.version, "kind": each.kind}]}
            for each, schema in self.store.schemas.items()
            if path == f"/openapi/v3/apis/{each.api_version}"
        }

    def _target(self, path: str) -> tuple[Resource, Name, str]:
        parts = path.strip("/").split("/")
        group = ""
        if parts[0] == "apis" and len(parts) > 3:
            group, parts = parts[1], parts[2:]
        elif parts[0] == "api" and len(parts) > 2:
            parts = parts[1:]
        else:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        version, parts = parts[0], parts[1:]
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        resource = self._resources.get((group, version, parts[0]))
        if resource is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        name = parts[1] if len(parts) > 1 else ""
        return resource, (namespace, name), parts[2] if len(parts) > 2 else ""

    def _do(
        self, request: web.Request, resource: Resource, name: Name, subresource: str, body: Tree
    ) -> web.Response:
        store = self.store
        match request.method, subresource:
            case "GET", "":
                if name[1]:
                    return web.json_response(store.get(resource, name))
                query = request.query
                limit = int(query.get("limit", "0"))
                token = query.get("continue", "")
                selector = _selector(request)
                return web.json_response(store.page(resource, name[0], selector, limit, token))
            case "POST", "" if not name[1]:
                return web.json_response(store.create(resource, name[0], body), status=201)
            case "PUT", ("" | "status") if name[1]:
                return web.json_response(store.replace(resource, name, body, subresource))
            case "PATCH", "" if name[1] and request.content_type == _APPLY:
                try:
                    return web.json_response(store.merge(resource, name, body))
                except ApiError as error:
                    if error.code != 404:
                        raise
                return web.json_response(store.create(resource, name[0], body), status=201)
            case "PATCH", ("" | "status") if name[1]:
                strategic = request.content_type == "application/strategic-merge-patch+json"
                if not strategic and request.content_type != "application/merge-patch+json":
                    text = "the fake server knows merge patches, strategic or not, alone"
                    raise ApiError(415, "UnsupportedMediaType", text)
                if strategic and resource in store.schemas:
                    text = "custom resources have no strategic merge patch"
                    raise ApiError(415, "UnsupportedMediaType", text)
                done = store.merge(resource, name, body, subresource, strategic=strategic)
                return web.json_response(done)
            case "DELETE", "" if name[1]:
                conditions = body.get("preconditions", {})
                return web.json_response(store.delete(resource, name, conditions))
            case "POST", "binding":
                return self._bind(resource, name, body)
            case "POST", "eviction":
                return self._evict(resource, name, body)
            case (("GET" | "PATCH" | "PUT"), "scale") if resource.scale:
                return self._scale(request.method, resource, name, body)
        raise ApiError(405, "MethodNotAllowed", f"{request.method} is not allowed here")

    def _bind(self, resource: Resource, name: Name, body: Tree) -> web.Response:
        pod = self.store.get(resource, name)
        meta = body.get("metadata", {})
        if meta.get("uid") not in (None, "", pod["metadata"]["uid"]):
            raise conflict(resource, name[1], "the UID in the precondition differs")
        if node := pod["spec"].get("nodeName"):
            text = f"pod {name[1]} is already assigned to node {node!r}"
            raise conflict(resource, name[1], text)
        patch = {
            "metadata": {"annotations": meta.get("annotations", {})},
            "spec": {"nodeName": body["target"]["name"]},
        }
        self.store.merge(resource, name, patch)
        return web.json_response({"kind": "Status", "status": "Success", "code": 201}, status=201)

    def _evict(self, resource: Resource, name: Name, body: Tree) -> web.Response:
        pod = self.store.get(resource, name)
        budgets = self.store.all(self.resource("poddisruptionbudgets"), name[0], Selector())
        allowed(pod, budgets)
        conditions = body.get("deleteOptions", {}).get("preconditions", {})
        self.store.delete(resource, name, conditions)
        return web.json_response({"kind": "Status", "status": "Success", "code": 201}, status=201)

    def _scale(self, method: str, resource: Resource, name: Name, body: Tree) -> web.Response:
        if method != "GET":
            replicas = body["spec"]["replicas"]
            self.store.merge(resource, name, {"spec": {"replicas": replicas}})
        owner = self.store.get(resource, name)
        scale = {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {k: v for k, v in owner["metadata"].items() if k not in ("labels",)},
            "spec": {"replicas": owner.get("spec", {}).get("replicas", 0)},
            "status": {"replicas": owner.get("status", {}).get("replicas", 0)},
        }
        return web.json_response(scale)

    async def _watch(
        self, request: web.Request, resource: Resource, namespace: str
    ) -> web.StreamResponse:
        selector = _selector(request)
        asked = request.query.get("resourceVersion", "")
        seen = int(asked) if asked not in ("", "0") else 0
        self.store.since(seen)  # refuses one that is too old
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        cut, wake, bookmark = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.faults.watchers.add(cut)
        self._versions.add(wake)
        if request.query.get("allowWatchBookmarks") in ("1", "true"):
            self.bookmarks.add(bookmark)
        until = asyncio.get_running_loop().time() + float(request.query.get("timeoutSeconds", 600))
        ends = asyncio.get_running_loop().call_at(until, cut.set)
        cutter = asyncio.get_running_loop().create_task(_forward(cut, wake))
        try:
            while not cut.is_set() and not self.faults.down:
                wake.clear()
                try:
                    lines = self._lines(resource, namespace, selector, seen)
                except ApiError as error:
                    await self._send(answer, [{"type": "ERROR", "object": error.status()}])
                    break
                seen = self.store.version
                if bookmark.is_set():
                    bookmark.clear()
                    lines.append(_bookmark(resource, seen))
                await self._send(answer, lines)
                await wake.wait()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            ends.cancel()
            cutter.cancel()
            self.faults.watchers.discard(cut)
            self._versions.discard(wake)
            self.bookmarks.discard(bookmark)
        return answer

    def _lines(
        self, resource: Resource, namespace: str, selector: Selector, seen: int
    ) -> list[Tree]:
        found = []
        for each in self.store.since(seen):
            if each.resource != resource:
                continue
            if namespace not in ("", each.after["metadata"].get("namespace", "")):
                continue
            if kind := _event(each, selector):
                found.append({"type": kind, "object": each.after})
        return found

    async def _send(self, answer: web.StreamResponse, lines: list[Tree]) -> None:
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        size = self.faults.piece_bytes or len(data) or 1
        for start in range(0, len(data), size):
            await answer.write(data[start : start + size])
            if self.faults.piece_bytes:
                await asyncio.sleep(0)


def _event(change: Logged, selector: Selector) -> str:
    """What a watch with this selector sees of a change; empty: nothing."""
    was = change.before is not None and selector.matches(change.before)
    matches = not change.gone and selector.matches(change.after)
    if matches:
        return "MODIFIED" if was else "ADDED"
    return "DELETED" if was else ""


def _bookmark(resource: Resource, version: int) -> Tree:
    bare = {"kind": resource.kind, "apiVersion": resource.api_version}
    return {"type": "BOOKMARK", "object": {**bare, "metadata": {"resourceVersion": str(version)}}}


def _selector(request: web.Request) -> Selector:
    query = request.query
    return parse(query.get("fieldSelector", ""), query.get("labelSelector", ""))


async def _forward(cut: asyncio.Event, wake: asyncio.Event) -> None:
    await cut.wait()
    wake.set()


def _refusal(error: ApiError) -> web.Response:
    headers = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    return web.json_response(error.status(), status=error.code, headers=headers)


async def _faulty(
    request: web.Request, answer: web.StreamResponse, fault: Fault | None
) -> web.StreamResponse:
    if fault is None or answer.prepared:
        return answer
    if fault.after_s is None:
        await asyncio.Event().wait()
    elif fault.after_s:
        await asyncio.sleep(fault.after_s)
    if fault.drop:
        return _closed(request)
    return answer if fault.body is None else web.Response(body=fault.body)


def _closed(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


@contextlib.asynccontextmanager
async def serving(*definitions: Tree, tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeKube]:
    """A server on a free port of loopback, with the kinds of these definitions besides its own."""
    fake = FakeKube()
    fake.define(*definitions)
    app = web.Application(client_max_size=8 << 20)
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        host, port = runner.addresses[0][:2]
        fake.url = f"{'https' if tls else 'http'}://{host}:{port}"
        RUNNING[fake.url] = fake
        yield fake
    finally:
        RUNNING.pop(fake.url, None)
        fake.faults.cut_watches()
        await runner.cleanup()
