"""The fields of Kubernetes objects that this project reads; everything else is passed over while
decoding, which makes it ten times as fast as decoding all (shared/companion.md 1.6)."""

from __future__ import annotations

from typing import Any

import msgspec


class Shape(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Keys as the API server writes them."""


class Metadata(Shape, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Object(Shape, frozen=True):
    """What every object has."""

    metadata: Metadata = Metadata()

    @property
    def full_name(self) -> str:
        """``namespace/name``, or the name of what is in no namespace."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name

    def lean(self) -> Any:
        """What is kept of it where nobody asks for all of it (`Mirror`)."""
        return self


class ListMetadata(Shape, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(Shape, frozen=True):
    """Of a list. Items are decoded one by one, so that a bad one costs itself alone."""

    metadata: ListMetadata = ListMetadata()
    items: tuple[msgspec.Raw, ...] | None = None


class Event(Shape, frozen=True):
    """A line of a watch."""

    type: str
    object: msgspec.Raw


class Status(Shape, frozen=True):
    """What the server says of a request that it refused."""

    code: int = 0
    reason: str = ""
    message: str = ""
