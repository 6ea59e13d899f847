"""What the server says when it refuses."""

from __future__ import annotations

from typing import Any

from tests.fakekube.resources import Resource


class ApiError(Exception):
    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        retry_after_s: int | None = None,
        fields: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s
        self.fields = fields

    def status(self) -> dict[str, Any]:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
            "details": {"causes": [{"field": each} for each in self.fields]},
        }


def _plural(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def missing(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{_plural(resource)} "{name}" not found')


def exists(resource: Resource, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{_plural(resource)} "{name}" already exists')


def conflict(resource: Resource, name: str, why: str) -> ApiError:
    text = f'Operation cannot be fulfilled on {_plural(resource)} "{name}": {why}'
    return ApiError(409, "Conflict", text)


def invalid(resource: Resource, name: str, why: str) -> ApiError:
    return ApiError(422, "Invalid", f'{resource.kind} "{name}" is invalid: {why}')


def immutable(resource: Resource, name: str, field: str) -> ApiError:
    """Of a patch; other requests that name another uid are a conflict."""
    text = f'{resource.kind} "{name}" is invalid: {field}: Invalid value: field is immutable'
    return ApiError(422, "Invalid", text, fields=(field,))


def expired(why: str) -> ApiError:
    return ApiError(410, "Expired", why)
