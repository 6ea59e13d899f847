"""How a request to the API server can fail.

What matters about a failed write is whether it may have happened: ``NotSentError`` says no,
``NoAnswerError`` says perhaps, and whoever wrote learns it from the watch.
"""

from __future__ import annotations


class KubeError(Exception):
    """A request that did not succeed. The text says which, and why."""


class NotSentError(KubeError):
    """No server took the request: it cannot have happened."""


class NoAnswerError(KubeError):
    """The server had the request and did not answer in time: a write may have happened."""


class UnusableError(KubeError):
    """The server answered with what is no answer of the Kubernetes API."""


class TooLargeError(UnusableError):
    """An answer, or a line of one, of more bytes than are taken."""


class RefusedError(KubeError):
    """The server said no.

    ``status`` is that of HTTP, ``reason`` the word of the API (``Conflict``, ``Expired`` ...; empty
    where something before the server answered). ``retry_after_s``: when it asks to be asked again;
    None where it does not say. ``fields``: those that it finds wrong, as far as it says.
    """

    def __init__(
        self,
        text: str,
        status: int,
        reason: str = "",
        retry_after_s: float | None = None,
        fields: tuple[str, ...] = (),
    ) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.fields = fields

    @property
    def conflict(self) -> bool:
        """The object changed since it was read, or is another one of its name; read it again and
        decide anew. Of a patch that names another uid the server says that this field cannot be
        changed (422), where it says 409 of all other requests."""
        if self.status == 422:
            return "metadata.uid" in self.fields
        return self.status == 409 and self.reason != "AlreadyExists"

    @property
    def gone(self) -> bool:
        """The object that was meant is no longer there as it was."""
        return self.missing or self.conflict

    @property
    def exists(self) -> bool:
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def missing(self) -> bool:
        return self.status == 404

    @property
    def expired(self) -> bool:
        """The server no longer has the version that was asked for: list anew."""
        return self.status == 410

    @property
    def throttled(self) -> bool:
        """The server is busy, or a disruption budget forbids an eviction: try again later."""
        return self.status == 429

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later without any change to it."""
        return self.throttled or self.status >= 500


class CredentialsError(Exception):
    """What should say where the server is and who we are cannot be used. The text names file and
    field, and what to do."""
