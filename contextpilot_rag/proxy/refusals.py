"""Refusals as they are sent: in the words of the clients that ask, OpenAI's or Anthropic's."""

from __future__ import annotations

from email.utils import formatdate

import msgspec

from .problems import Refused

_CLOSE = frozenset({408, 413})  # answered while the body is still on its way: nothing can follow it
# What Anthropic's API calls them.
_KINDS = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    502: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_encode = msgspec.json.Encoder().encode


def refusal(error: Refused, path: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """The body and the headers of an answer that is ours.

    Args:
        error: what is refused, and why.
        path: that was asked for.

    >>> refusal(Refused("too hot"), b"/v1/messages")[0]
    b'{"type":"error","error":{"type":"invalid_request_error","message":"too hot"}}'
    """
    problem = error.problem()
    if path.endswith((b"/v1/messages", b"/v1/messages/count_tokens")):
        kind = _KINDS.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
        problem = {"type": "error", "error": {"type": kind, "message": str(error)}}
    body = _encode(problem)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (b"date", formatdate(usegmt=True).encode("ascii")),
    ]
    headers += [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in error.headers.items()]
    if error.status in _CLOSE:
        headers.append((b"connection", b"close"))
    return body, headers
