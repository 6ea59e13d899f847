"""AdmissionReview: what the API server asks, and what it is answered (admission.k8s.io/v1)."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from koord_scheduler.admission.json_patch import json_patch
from koord_scheduler.admission.words import AdmissionError, Tree
from koordlet.kube.objects import Shape

_API_VERSION = "admission.k8s.io/v1"
_MOST_CHARACTERS = 4000
"""Of a message."""
MOST_VALUES = 100_000
"""Most commas, brackets and braces of a review outside of strings. It may have a pod twice."""
MOST_CONTAINERS = 1_000
"""Most of a pod. The API server has no bound but that of etcd on bytes; each costs 0.1 ms."""
_UID_CHARACTERS = 256
_UID_WITHIN_BYTES = 16 << 10
"""The API server writes it at the beginning."""
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_STRINGS = re.compile(rb'(?:[^"]*+"(?:[^"\\]++|\\.)*+"){1,500}', re.DOTALL)
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[][{}:,"]', re.DOTALL)
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
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


def request_of(body: bytes | bytearray) -> Request:
    """Raises AdmissionError for what is no AdmissionReview."""
    try:
        return msgspec.json.decode(body, type=_Review).request
    except (msgspec.MsgspecError, RecursionError) as error:
        raise AdmissionError(f"the body is no AdmissionReview of {_API_VERSION}: {error}") from None


def uid_in(body: bytes | bytearray) -> str:
    """Return ``request.uid`` of a body that `request_of` cannot read, for example because it is
    nested too deeply; empty where it has none near its beginning."""
    path: list[bytes] = []
    before = word = b""
    for found in _TOKEN.finditer(body, 0, _UID_WITHIN_BYTES):
        token = found.group()
        if token == b":":
            before, word = word, b""
        elif token in b"{[":
            path.append(before)
            before = b""
        elif token in b"}]":
            del path[-1:]
        elif token == b'"':
            return ""  # a string without an end
        elif token == b",":
            before = word = b""
        else:
            if before == b'"uid"' and path == [b"", b'"request"']:
                uid = _text(token)
                return uid if len(uid) <= _UID_CHARACTERS else ""
            before, word = b"", token
    return ""


def _text(token: bytes) -> str:
    try:
        return msgspec.json.decode(token, type=str)
    except msgspec.MsgspecError:
        return ""


def values_of(text: bytes | bytearray, begin: int = 0, end: int | None = None) -> int:
    """Return about how many values JSON text has; marks within strings count too."""
    return sum(text.count(mark, begin, end) for mark in (b",", b"{", b"["))


def check_values(text: bytes | bytearray) -> None:
    """Raise AdmissionError for a body with more values than anybody needs, before they are made."""
    found = end = 0
    while found <= MOST_VALUES and (part := _STRINGS.match(text, end)) is not None:
        found += values_of(_STRING.sub(b"", part.group()))
        end = part.end()
    # What is left has no string, or one that does not end.
    if found + values_of(text, end) > MOST_VALUES:
        raise AdmissionError(f"the review has more than {MOST_VALUES} values")


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
    spec = found.get("spec") if found is not None else None
    if isinstance(spec, dict):
        lists = (spec.get(name) for name in _CONTAINERS)
        if sum(len(each) for each in lists if isinstance(each, list)) > MOST_CONTAINERS:
            raise AdmissionError(f"the pod has more than {MOST_CONTAINERS} containers")
    return found
