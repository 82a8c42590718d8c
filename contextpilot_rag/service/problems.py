"""What the service answers instead of a result: each an exception with its HTTP status, sent as RFC 9457 has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import ClassVar

from ..errors import ContextPilotError
from ..remote.wire import Problem


class Rejected(ContextPilotError):
    """A request that is not answered as it was asked; nothing was changed.

    Args:
        detail: what is wrong and where, in a sentence. Never holds a key, a salt or another tenant's names.
    """

    status: ClassVar[int] = 400
    kind: ClassVar[str] = "bad-request"

    @property
    def headers(self) -> Mapping[str, str | tuple[str, ...]]:
        """Sent with it; several values are several lines."""
        return {}

    def problem(self) -> Problem:
        """For the body."""
        title = HTTPStatus(self.status).phrase
        return Problem(title, self.status, f"urn:contextpilot-rag:problem:{self.kind}", str(self))


class Malformed(Rejected):
    """A body that is no JSON, or not of the documented form."""

    kind = "malformed"


class Unauthorized(Rejected):
    """No key, or none that is known."""

    status = 401
    kind = "unauthorized"

    @property
    def headers(self) -> Mapping[str, str | tuple[str, ...]]:
        """Which schemes there are; browsers ask for the key then. Chromium knows one scheme a line, and no more."""
        return {"WWW-Authenticate": ('Basic realm="contextpilot-rag"', 'Bearer realm="contextpilot-rag"')}


class Forbidden(Rejected):
    """A key that may not do this."""

    status = 403
    kind = "forbidden"


class NotFound(Rejected):
    """Something of this name is not there; perhaps not any more."""

    status = 404
    kind = "not-found"


class MethodNotAllowed(Rejected):
    """The path is there, for other methods.

    Args:
        allowed: which.
    """

    status = 405
    kind = "method-not-allowed"

    def __init__(self, allowed: Iterable[str]) -> None:
        self.allowed = ", ".join(sorted(allowed))
        super().__init__(f"this path takes {self.allowed}")

    @property
    def headers(self) -> Mapping[str, str]:
        """Which methods there are."""
        return {"Allow": self.allowed}


class TooSlow(Rejected):
    """A body that did not come in time."""

    status = 408
    kind = "too-slow"


class Conflict(Rejected):
    """It contradicts what is there."""

    status = 409
    kind = "conflict"


class TooLarge(Rejected):
    """A body, or a part of it, over a limit that the service has."""

    status = 413
    kind = "too-large"


class UrlTooLong(Rejected):
    """A path or a query that is longer than any that means something."""

    status = 414
    kind = "too-long"


class NotJson(Rejected):
    """A body of another content type."""

    status = 415
    kind = "not-json"


class Misdirected(Rejected):
    """A Host that is not this service: a web page that had its own name point here."""

    status = 421
    kind = "misdirected"


class Unusable(Rejected):
    """Well-formed, and yet it cannot be: two texts under one id, an order that is none of the blocks."""

    status = 422
    kind = "unusable"


class TooMany(Rejected):
    """Over a tenant's rate or quota.

    Args:
        detail: which.
        retry_after: seconds.
    """

    status = 429
    kind = "too-many"

    def __init__(self, detail: str, retry_after: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after

    @property
    def headers(self) -> Mapping[str, str]:
        """When to come again, in whole seconds."""
        return {"Retry-After": str(max(1, round(self.retry_after + 0.5)))}


class Unavailable(TooMany):
    """Not now: it is starting or draining, or everybody's share of something is used up."""

    status = 503
    kind = "unavailable"


class Failed(Rejected):
    """The service itself is at fault; its log says why."""

    status = 500
    kind = "failed"
