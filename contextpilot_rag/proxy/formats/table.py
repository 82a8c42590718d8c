"""Which format a request is of, by where it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from ..words import Api, Format
from .chat import Chat
from .completions import Completions
from .messages import Messages
from .responses import Responses

FORMATS: Mapping[Api, Format] = {one.api: one for one in (Chat(), Completions(), Responses(), Messages())}

# Whatever stands before them: many serve these paths below a prefix of their own. Some do without a /v1 where nothing
# else could be meant, so that a client with a base URL that lacks it is answered.
_ENDS: Mapping[str, Api] = {
    "/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}
# Other paths where engines answer prompts, and take a cache_salt with them: SGLang's own, vLLM's for prompts that are
# tokens already, and for several conversations at once; and what clouds that host models call all of these.
_GENERATING = frozenset({"/generate", "/inference/v1/generate", "/v1/chat/completions/batch", "/invocations"})


def api_of(method: str, path: bytes | str) -> Api | None:
    """The format of a request; None: it passes as it is.

    Args:
        method: of HTTP.
        path: without a query string.

    >>> api_of("POST", "/openai/v1/responses"), api_of("POST", b"/v1/messages/count_tokens")
    ('responses', None)
    >>> api_of("POST", "/v1/%63ompletions"), api_of("POST", "/openai/deployments/a/chat/completions")
    ('completions', 'chat')
    """
    if method != "POST":
        return None
    text = _decoded(path)
    return next((api for end, api in _ENDS.items() if text.endswith(end)), None)


def generates(method: str, path: bytes | str) -> bool:
    """Whether an engine answers a prompt there, though the request is of no format that is read.

    Args:
        method: of HTTP.
        path: without a query string.

    >>> generates("POST", b"/generate"), generates("POST", "/v1/embeddings"), generates("GET", "/generate")
    (True, False, False)
    """
    return method in {"POST", "PUT"} and _decoded(path) in _GENERATING  # SGLang takes both


def _decoded(path: bytes | str) -> str:
    """A path as servers look it up."""
    text = path if isinstance(path, str) else path.decode("latin-1")
    return unquote(text) if "%" in text else text
