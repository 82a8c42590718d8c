"""What the proxy itself refuses, in the words and the shape of an OpenAI error, so that clients show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ContextPilotError


class Refused(ContextPilotError):
    """The proxy does not forward a request.

    Args:
        detail: why, for whoever sent it.
        param: which part of the request it is about.
        headers: that the answer has besides.
    """

    status = 400
    kind = "invalid_request_error"

    def __init__(self, detail: str, param: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.param = param
        self.headers = dict(headers or {})

    def problem(self) -> dict[str, Any]:
        """The answer's body."""
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.status}
        return {"error": error}


class Unusable(Refused):
    """What the client asked of the proxy cannot be done."""


class NoKey(Refused):
    """No key is shown, or none that is known."""

    status = 401
    kind = "authentication_error"


class TooLarge(Refused):
    """The body is larger than it may be."""

    status = 413


class TooSlow(Refused):
    """The body did not come in time."""

    status = 408


class Misdirected(Refused):
    """The request names a host that this is not."""

    status = 421


class Foreign(Refused):
    """A web page sent the request, of a site that this proxy does not serve."""

    status = 403
    kind = "permission_error"


class Unreachable(Refused):
    """No upstream answers."""

    status = 502
    kind = "upstream_error"


class Busy(Refused):
    """The proxy has more to do than it may, or is ending."""

    status = 503
    kind = "overloaded_error"


class UpstreamLate(Refused):
    """An upstream gave no answer in time."""

    status = 504
    kind = "upstream_error"


class NotOffered(Refused):
    """What is asked for is no request and answer that could be forwarded."""

    status = 501


class TooOften(Refused):
    """Over a tenant's rate."""

    status = 429
    kind = "rate_limit_error"
