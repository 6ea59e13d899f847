"""AdmissionReview: what the API server asks, and what it is answered (admission.k8s.io/v1)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from koord_scheduler.admission.json_patch import json_patch
from koord_scheduler.admission.words import AdmissionError, Tree
from koordlet.kube.objects import Shape

_API_VERSION = "admission.k8s.io/v1"
_MOST_CHARACTERS = 4000
"""Of a message."""
_REASONS = {400: "BadRequest", 403: "Forbidden", 500: "InternalError"}


class User(Shape, frozen=True):
    username: str = ""


class Resource(Shape, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class Request(Shape, frozen=True):
    """``object`` and ``old_object`` as the server wrote them; empty where there is none."""

    uid: str
    operation: str
    resource: Resource = Resource()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: User = User()
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    dry_run: bool | None = None

    @property
    def tree(self) -> Tree:
        """The object. Raises AdmissionError where there is none."""
        found = _tree(self.object)
        if found is None:
            raise AdmissionError(f"{self.operation} without an object")
        return found

    @property
    def old_tree(self) -> Tree | None:
        return _tree(self.old_object)


class _Review(Shape, frozen=True):
    request: Request


class Answer(NamedTuple):
    """``changed``: the object as it should be, where ``original`` is to be patched to it. ``audit``
    goes into the audit log of the API server."""

    refusal: str = ""
    code: int = 200
    original: Tree | None = None
    changed: Tree | None = None
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = {}


ALLOWED = Answer()


def request_of(body: bytes) -> Request:
    """Raises AdmissionError for what is no AdmissionReview."""
    try:
        return msgspec.json.decode(body, type=_Review).request
    except (msgspec.MsgspecError, RecursionError) as error:
        raise AdmissionError(f"the body is no AdmissionReview of {_API_VERSION}: {error}") from None


def response(uid: str, answer: Answer) -> bytes:
    found: Tree = {"uid": uid, "allowed": not answer.refusal}
    if answer.refusal:
        found["status"] = {
            "code": answer.code,
            "reason": _REASONS.get(answer.code, ""),
            "message": answer.refusal[:_MOST_CHARACTERS],
        }
    elif answer.changed is not None:
        patch = json_patch(answer.original, answer.changed)
        if patch:
            found["patchType"] = "JSONPatch"
            found["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    if answer.warnings:
        found["warnings"] = [each[:256] for each in answer.warnings[:16]]
    if answer.audit:
        found["auditAnnotations"] = dict(answer.audit)
    return msgspec.json.encode(
        {"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": found}
    )


def _tree(raw: msgspec.Raw) -> Tree | None:
    try:
        found: Any = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise AdmissionError(f"the object cannot be read: {error}") from None
    if found is not None and not isinstance(found, dict):
        raise AdmissionError("the object is none")
    return found
