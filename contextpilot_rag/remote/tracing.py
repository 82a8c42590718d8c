"""Where a request belongs in a trace, if the application makes traces with OpenTelemetry; else nothing, at no cost."""

from __future__ import annotations

import sys

Headers = list[tuple[bytes, bytes]]


def trace_headers() -> Headers:
    """The headers of the span that is under way in this thread or task; none if there is none.

    Whoever makes traces has imported OpenTelemetry, so it is never imported from here first. Only the trace's own
    headers are sent: baggage may hold what is none of an index's business.

    >>> trace_headers()
    []
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not hasattr(trace, "get_current_span"):  # not imported, or only by half so far
        return []
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return []
    found = [(b"traceparent", b"00-%032x-%016x-%02x" % (context.trace_id, context.span_id, context.trace_flags))]
    state = context.trace_state.to_header() if context.trace_state else ""
    if state.isascii() and 0 < len(state) <= 512:
        found.append((b"tracestate", state.encode("ascii")))
    return found
