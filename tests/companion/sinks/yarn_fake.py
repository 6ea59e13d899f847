"""A ResourceManager in this process that answers as the recorded one did.

`recorded/` holds what Hadoop 3.4.1 said, byte for byte; `test_real_yarn` compares it with a real
one where that can be had.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web

RECORDED = Path(__file__).parent / "recorded"
Tree = dict[str, Any]


def recorded(name: str) -> Tree:
    found: Tree = json.loads((RECORDED / f"{name}.json").read_text())
    return found


class FakeYarn:
    """``nodes``: by id, as in the answer. ``own``: what a NodeManager says it has when it begins
    anew. ``status``: answered to everything, instead. ``standby``: it sends callers elsewhere."""

    def __init__(self) -> None:
        self.nodes: dict[str, Tree] = {}
        self.requests: Counter[str] = Counter()
        self.users: set[str] = set()
        self.tokens: set[str] = set()
        self.timeouts: list[int] = []
        self.status = 0
        self.standby = False
        self.hangs = False
        self.body: bytes | None = None
        self.url = ""

    def join(self, node: str, vcores: int = 1, memory_mib: int = 1024) -> None:
        """A NodeManager begins, or begins anew: what was told of it before is forgotten."""
        made = copy.deepcopy(recorded("nodes")["nodes"]["node"][0])
        made |= {"id": node, "nodeHostName": node.rpartition(":")[0]}
        _set(made["totalResource"], vcores, memory_mib)
        self.nodes[node] = made

    def use(self, node: str, vcores: int, memory_mib: int) -> None:
        _set(self.nodes[node]["usedResource"], vcores, memory_mib)

    def total(self, node: str) -> tuple[int, int]:
        found = self.nodes[node]["totalResource"]
        return found["vCores"], found["memory"]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests[f"{request.method} {request.path}"] += 1
        self.users.add(request.query.get("user.name", ""))
        self.tokens.add(request.headers.get("Authorization", ""))
        if self.hangs:
            await asyncio.Event().wait()
        if self.standby:
            return web.Response(status=307, headers={"Location": "http://127.0.0.1:1/elsewhere"})
        if self.body is not None:
            return web.Response(body=self.body)
        if self.status:
            return web.Response(status=self.status, text="a fault of the test")
        parts = request.path.strip("/").split("/")
        if request.method == "GET" and parts == ["ws", "v1", "cluster", "nodes"]:
            return web.json_response(self._listed(request.query.get("states", "")))
        if request.method == "POST" and parts[:4] == ["ws", "v1", "cluster", "nodes"]:
            return await self._update(request, parts[4])
        return web.Response(status=404)

    def _listed(self, states: str) -> Tree:
        wanted = set(states.split(","))
        found = [each for each in self.nodes.values() if not states or each["state"] in wanted]
        return {"nodes": {"node": found} if found else {}}

    async def _update(self, request: web.Request, node: str) -> web.Response:
        if node not in self.nodes:
            text = json.dumps(recorded("unknown-node")).replace("nosuch:1", node)
            return web.Response(status=404, text=text, content_type="application/json")
        body = await request.json()
        self.timeouts.append(body["overCommitTimeout"])
        total = self.nodes[node]["totalResource"]
        _set(total, body["resource"]["vCores"], body["resource"]["memory"])
        return web.json_response({"resourceInfo": total})


def _set(resource: Tree, vcores: int, memory_mib: int) -> None:
    resource |= {"vCores": vcores, "memory": memory_mib}
    for each in resource["resourceInformations"]["resourceInformation"]:
        each["value"] = memory_mib if each["name"] == "memory-mb" else vcores


@contextlib.asynccontextmanager
async def fake_yarn() -> AsyncIterator[FakeYarn]:
    made = FakeYarn()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield made
    finally:
        await runner.cleanup()
