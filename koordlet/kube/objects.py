"""The fields of Kubernetes objects that this project reads; everything else is passed over while
decoding, which makes it ten times as fast as decoding all (shared/companion.md 1.6)."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

_NAME_CHARACTERS = 317
"""Of a namespace and a name with a stroke between."""


class Shape(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Keys as the API server writes them. ``open_ended``: a field takes any content, so that it is
    cut to a depth that can be walked (`scan.shallow`) before it is decoded."""

    open_ended: ClassVar[bool] = False


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
    remaining_item_count: int | None = None
    """What comes after this page. Lists with selectors do not say."""


class Page(Shape, frozen=True):
    """Of a list. Items are decoded one by one, so that a bad one costs itself alone."""

    kind: str = ""
    metadata: ListMetadata = ListMetadata()
    items: tuple[msgspec.Raw, ...] | None = None


class Event(Shape, frozen=True):
    """A line of a watch."""

    type: str
    object: msgspec.Raw


class Place(Shape, frozen=True):
    """Where an object stands, and in which version."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class Head(Shape, frozen=True):
    """What can be read of any object, whatever else is wrong with it."""

    kind: str = ""
    metadata: Place = Place()

    @property
    def full_name(self) -> str:
        """As of an `Object`, and never longer than the API allows."""
        place = self.metadata
        text = f"{place.namespace}/{place.name}" if place.namespace else place.name
        return text[:_NAME_CHARACTERS]


class Cause(Shape, frozen=True):
    field: str = ""


class Details(Shape, frozen=True):
    causes: tuple[Cause, ...] = ()


class Status(Shape, frozen=True):
    """What the server says of a request that it refused."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """Which ones it finds wrong."""
        return tuple(each.field for each in self.details.causes) if self.details else ()
