"""Questions: what goes to the service, and how its answers are read. No input or output: threads and loops share it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from ..errors import IndexFailed, InputError, StateError
from ..index.sound import sound
from ..types import Alignment, IndexStats, Namespace, Request, Rule, Usage
from . import wire
from .keys import block_in
from .names import name_of, segment_of

if TYPE_CHECKING:
    from ..index.tree import PrefixTree

T = TypeVar("T")

_SALT = re.compile(r"[A-Za-z0-9_-]{1,128}")
_encode = msgspec.json.Encoder().encode
_ANSWERS: Mapping[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (
        wire.AlignOut,
        wire.SentOut,
        wire.ObserveOut,
        wire.CoverOut,
        wire.PredictOut,
        wire.NamespaceOut,
        wire.Forgotten,
        wire.StatsOut,
    )
}


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One thing to ask.

    Args:
        method: of HTTP.
        path: encoded.
        body: JSON, or None.
        read: makes the result of an answer's body; raises IndexFailed where it cannot be.
        missing: the result where the service answers that there is no such thing; else that is an error.
        patient: it is none of a request's own business: it may take longer, and is asked whatever happened before.
    """

    method: str
    path: str
    body: bytes | None
    read: Callable[[bytes], T]
    missing: Callable[[], T] | None = None
    patient: bool = False


def align(request: Request, engine: str | None) -> Question[tuple[Alignment, str | None]]:
    """Choose an order: the alignment, and the namespace's cache salt.

    Raises:
        InputError: it cannot be sent.
    """
    ticket = secrets.token_urlsafe(16)

    def read(body: bytes) -> tuple[Alignment, str | None]:
        answer = _read(body, wire.AlignOut)
        if answer.ticket != ticket:
            raise IndexFailed("its answer is to another request")
        return _alignment(request, answer), _salt(answer.cache_salt)

    return Question("POST", "/v1/align", _asked(request, ticket, engine), read)


def predict(request: Request) -> Question[int]:
    """How much would be cached.

    Raises:
        InputError: it cannot be sent.
    """

    def read(body: bytes) -> int:
        tokens = _read(body, wire.PredictOut).predicted_cached_tokens
        if not 0 <= tokens <= request.tokens:
            raise IndexFailed("it predicts more cached tokens than there are")
        return tokens

    return Question("POST", "/v1/predict", _asked(request, None, None), read)


def sent(alignment: Alignment, ticket: str, engine: str | None) -> Question[None]:
    """Tell of an order that was chosen elsewhere.

    Raises:
        InputError: it cannot be sent.
    """
    request = alignment.request
    body = wire.SentIn(
        blocks=[block_in(block) for block in request.blocks],
        order=list(alignment.order),
        namespace=_namespace(request.namespace),
        budget=_budget(request),
        cached_blocks=alignment.cached_blocks,
        predicted_cached_tokens=alignment.predicted_cached_tokens,
        retrieved_cached_tokens=alignment.retrieved_cached_tokens,
        rule=alignment.rule.value,
        ticket=ticket,
        engine=engine,
    )

    def read(answer: bytes) -> None:
        if _read(answer, wire.SentOut).ticket != ticket:
            raise IndexFailed("its answer is to another request")

    return Question("POST", "/v1/sent", _encoded(body), read)


def observe(ticket: str, usage: Usage) -> Question[None]:
    """Report what the engine said. A ticket that the service does not know any more is no failure."""
    reported = wire.UsageIn(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)

    def read(body: bytes) -> None:
        _read(body, wire.ObserveOut)

    return Question("POST", "/v1/observe", _encoded(wire.ObserveIn(ticket, reported)), read, _nothing)


class Covered(Protocol):
    """Where a prompt's blocks stand: a `Covering`."""

    @property
    def keys(self) -> tuple[bytes, ...]:
        """Of its full KV blocks."""
        ...

    @property
    def contents(self) -> tuple[bytes, ...]:
        """Of the same."""
        ...

    @property
    def ends(self) -> tuple[int, ...]:
        """In tokens, one more than there are blocks."""
        ...

    @property
    def tokens(self) -> int:
        """Of the prompt."""
        ...

    @property
    def block_size(self) -> int:
        """Tokens of a KV block."""
        ...


def cover(ticket: str, covering: Covered, cached_tokens: int | None) -> Question[bool]:
    """Tell where a prompt's blocks stand; whether that is of use. No request waits for it."""
    body = wire.CoverIn(
        ticket,
        b"".join(covering.keys),
        b"".join(covering.contents),
        list(covering.ends),
        covering.tokens,
        covering.block_size,
        None if cached_tokens is None else min(cached_tokens, covering.tokens),
    )

    def read(answer: bytes) -> bool:
        return _read(answer, wire.CoverOut).taken

    return Question("POST", "/v1/cover", _encoded(body), read, lambda: False, patient=True)


def salt(namespace: Namespace) -> Question[tuple[str | None] | None]:
    """A namespace's cache salt, in a tuple; None where the service knows none of that name.

    Raises:
        InputError: it cannot be sent.
    """

    def read(body: bytes) -> tuple[str | None] | None:
        answer = _read(body, wire.NamespaceOut)
        if answer.name != name_of(namespace):
            raise IndexFailed("its answer is to another request")
        return (_salt(answer.cache_salt),)

    return Question("GET", f"/v1/namespaces/{_segment(namespace)}", None, read, _nothing)


def forget(namespace: Namespace | None, conversations: bool) -> Question[None]:
    """Forget a namespace, or all of the tenant's.

    Raises:
        InputError: it cannot be sent.
    """
    path = "/v1/namespaces" if namespace is None else f"/v1/namespaces/{_segment(namespace)}"
    query = _head(namespace)
    if conversations:
        query.append("conversations=true")

    def read(body: bytes) -> None:
        _read(body, wire.Forgotten)

    return Question("DELETE", _with_query(path, query), None, read, patient=True)


def tree(namespace: Namespace, blocks: int) -> Question[PrefixTree | None]:
    """What is believed to be cached for a namespace; None where nothing is known.

    Raises:
        InputError: it cannot be sent.
    """

    def read(body: bytes) -> PrefixTree | None:
        from .wire_tree import decoded_tree

        try:
            return decoded_tree(body)
        except StateError as error:
            raise IndexFailed(f"its answer cannot be read: {error}") from None

    path = _with_query(f"/v1/namespaces/{_segment(namespace)}/tree", [*_head(namespace), f"blocks={blocks}"])
    return Question("GET", path, None, read, _nothing, patient=True)


def stats() -> Question[IndexStats]:
    """The tenant's counts."""
    names = [field.name for field in fields(IndexStats)]

    def read(body: bytes) -> IndexStats:
        answer = _read(body, wire.StatsOut)
        return IndexStats(**{name: getattr(answer, name) for name in names})

    return Question("GET", "/v1/stats", None, read, patient=True)


def _asked(request: Request, ticket: str | None, engine: str | None) -> bytes:
    return _encoded(
        wire.AlignIn(
            blocks=[block_in(block) for block in request.blocks],
            namespace=_namespace(request.namespace),
            budget=_budget(request),
            ticket=ticket,
            engine=engine,
        )
    )


def _budget(request: Request) -> wire.BudgetIn:
    """The request's, with no more places in it than there are: a service takes no higher number."""
    budget, most = request.budget, len(request.blocks)
    displaced = budget.max_displacement
    return wire.budget_in(
        replace(
            budget,
            protect_top=min(budget.protect_top, most),
            max_displacement=None if displaced is None else min(displaced, most),
        )
    )


def _alignment(request: Request, answer: wire.AlignOut) -> Alignment:
    try:
        rule = Rule(answer.rule)
    except ValueError:
        raise IndexFailed("its answer has counts or a rule that cannot be") from None
    if len(answer.order) != len(request.blocks):  # looked at first, since a long one takes long to look through
        raise IndexFailed("its answer is no order of the request's blocks")
    if not 0 <= answer.cached_blocks <= len(request.blocks):
        raise IndexFailed("its answer has counts or a rule that cannot be")
    found = Alignment(
        request,
        tuple(answer.order),
        answer.cached_blocks,
        answer.predicted_cached_tokens,
        answer.retrieved_cached_tokens,
        rule,
        answer.ticket,
    )
    return sound(found, request)


def _salt(text: str | None) -> str | None:
    """A cache salt as a service makes them; anything else would send requests into an engine's cache of others."""
    if text is not None and not _SALT.fullmatch(text):
        raise IndexFailed("its answer has a cache salt that cannot be")
    return text


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return _ANSWERS[kind].decode(body)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise IndexFailed(f"its answer cannot be read: {error}") from None


def _encoded(message: msgspec.Struct) -> bytes:
    try:
        return _encode(message)
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        raise InputError(f"the request cannot be sent to a service: {error}") from None


def _namespace(namespace: Namespace) -> wire.NamespaceIn:
    for name in ("tenant", "model", "corpus", "head"):
        length = len(getattr(namespace, name))
        if length > wire.MAX_FIELD:
            raise InputError(
                f"a namespace's {name} has at most {wire.MAX_FIELD} characters in a service, not {length:,}"
            )
    return wire.namespace_in(namespace)


def _segment(namespace: Namespace) -> str:
    _namespace(namespace)
    try:
        namespace.head.encode("utf-8")
        return segment_of(namespace)
    except UnicodeEncodeError as error:
        raise InputError(f"the namespace cannot be sent to a service: {error}") from None


def _head(namespace: Namespace | None) -> list[str]:
    return [] if namespace is None or not namespace.head else [f"head={quote(namespace.head, safe='')}"]


def _with_query(path: str, query: list[str]) -> str:
    return f"{path}?{'&'.join(query)}" if query else path


def _nothing() -> None:
    return None
