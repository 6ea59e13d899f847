"""All objects of a kind, page by page."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping
from typing import TypeVar

import msgspec

from koordlet.kube.client import PAGE, Client
from koordlet.kube.errors import TooLargeError, UnusableError
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import ListMetadata, Object

T = TypeVar("T", bound=Object)
_MOST_EMPTY = 10
"""Pages in a row without an object. The API server sends none."""
_SPARE_OBJECTS = 5_000
"""So many objects more than twice what the first page promised may come."""


async def pages(
    client: Client,
    kind: Kind[T],
    *,
    namespace: str = "",
    query: Mapping[str, str] | None = None,
    page: int = PAGE,
    begins_s: float | None = None,
) -> AsyncGenerator[tuple[list[msgspec.Raw], ListMetadata], None]:
    """Objects as the server wrote them, and what it says of the list. Where a page would be too
    large, fewer objects are asked for. Raises KubeError, also for a list that does not end.

    Whoever goes on must have let go of the objects: they hold the page.
    """
    asked, limit, empty, number, most = dict(query or {}), page, 0, 0, math.inf
    seen: set[str] = set()
    while True:
        asked["limit"] = str(limit)
        try:
            found = await client.page(kind, namespace=namespace, query=asked, begins_s=begins_s)
        except TooLargeError:
            if limit == 1:
                raise
            limit = max(limit // 4, 1)
            continue
        items, metadata = [*(found.items or ())], found.metadata
        del found
        empty = 0 if items else empty + 1
        number += len(items)
        if metadata.remaining_item_count is not None and not seen:
            most = 2 * (number + metadata.remaining_item_count) + _SPARE_OBJECTS
        yield items, metadata
        items.clear()
        if not metadata.continue_:
            return
        token = metadata.continue_
        if empty > _MOST_EMPTY or token in seen or number > most:
            raise UnusableError(f"GET {kind.path(namespace)}: a list that does not end")
        seen.add(token)
        asked["continue"] = token


async def items(
    client: Client,
    kind: Kind[T],
    *,
    namespace: str = "",
    query: Mapping[str, str] | None = None,
) -> AsyncGenerator[msgspec.Raw, None]:
    """As ``pages``, one by one."""
    async for found, _ in pages(client, kind, namespace=namespace, query=query):
        for raw in found:
            yield raw
