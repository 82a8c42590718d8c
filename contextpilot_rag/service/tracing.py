"""Tracing: OpenTelemetry spans around operations, within the traces that clients send along.

Only where ``opentelemetry-api`` (extra ``otel``) is installed and somebody has set up a tracer provider, such as
``opentelemetry-instrument contextpilot-rag serve``; else nothing is made, and nothing costs anything. Attributes are
counts: no ids, no tenants, no texts.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from .._version import __version__
from ..types import Alignment, Namespace, Usage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer, TracerProvider

NAME = "contextpilot_rag"


def found() -> Spans | None:
    """What makes spans, if there is a use for them: the packages are here, and somebody has set up a provider."""
    if "opentelemetry.trace" not in sys.modules and "OTEL_PYTHON_TRACER_PROVIDER" not in os.environ:
        return None  # nobody can have; importing it would cost every start for nothing
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return Spans(provider)


class Spans:
    """Makes spans, and is a watcher of the service: what an operation did stands on its span.

    Args:
        provider: makes tracers.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer: Tracer = provider.get_tracer(NAME, __version__)
        self._counts: ContextVar[Counter[str] | None] = ContextVar("counts", default=None)

    @contextmanager
    def span(self, operation: str, headers: Mapping[bytes, bytes]) -> Iterator[None]:
        """A span around an operation, within the trace that the headers name.

        Args:
            operation: method and path, as it was declared.
            headers: names in lower case; ``traceparent`` and ``tracestate`` count.
        """
        from opentelemetry.trace import SpanKind, Status, StatusCode

        method, _, path = operation.partition(" ")
        counts: Counter[str] = Counter()
        token = self._counts.set(counts)
        try:
            with self._tracer.start_as_current_span(
                operation,
                context=_context(headers),
                kind=SpanKind.SERVER,
                attributes={"http.request.method": method, "http.route": path},
                record_exception=False,  # messages of errors may name what was sent
                set_status_on_exception=False,
            ) as span:
                try:
                    yield
                except Exception as error:
                    status = getattr(error, "status", 500)
                    span.set_attribute("http.response.status_code", status)
                    span.set_attribute("error.type", getattr(error, "kind", type(error).__name__))
                    if status >= 500:
                        span.set_status(Status(StatusCode.ERROR))
                    raise
                finally:
                    for name, count in counts.items():
                        span.set_attribute(f"contextpilot.{name}", count)
        finally:
            self._counts.reset(token)

    def aligned(self, tenant: str, alignment: Alignment, engine: str | None, again_tokens: int) -> None:  # noqa: ARG002
        """A request was aligned, or taken as sent."""
        counts = self._counts.get()
        if counts is not None:
            counts["requests"] += 1
            counts["requests_changed"] += alignment.changed
            counts["blocks"] += len(alignment.request.blocks)
            counts["prompt_tokens"] += alignment.request.tokens
            counts["predicted_cached_tokens"] += alignment.predicted_cached_tokens
            counts["retrieved_cached_tokens"] += alignment.retrieved_cached_tokens
            counts["dedup_tokens_saved"] += again_tokens

    def observed(self, tenant: str, alignment: Alignment, engine: str | None, usage: Usage) -> None:  # noqa: ARG002
        """Usage was reported for an alignment."""
        counts = self._counts.get()
        if counts is not None and usage.cached_tokens is not None:
            counts["reported_cached_tokens"] += usage.cached_tokens
            counts["reported_prompt_tokens"] += usage.prompt_tokens or 0

    def forgot(self, tenant: str, namespace: Namespace | None) -> None:
        """Something was forgotten: no count."""


def _context(headers: Mapping[bytes, bytes]) -> Context:
    """The caller's trace; without one, none at all: what else this process traces is not the request's parent."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {
        name: headers[name.encode()].decode("latin-1")
        for name in ("traceparent", "tracestate")
        if name.encode() in headers
    }
    return TraceContextTextMapPropagator().extract(carrier, Context()) if carrier else Context()
