from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from contextpilot_rag import BlockRef, RemoteIndex, Request
from contextpilot_rag.remote.tracing import trace_headers
from tests.remote.stub import honestly, stub

REQUEST = Request((BlockRef(b"a" * 16, 100),))


def test_without_a_trace_nothing_is_sent_and_nothing_is_loaded():
    code = (
        "import sys; from contextpilot_rag.remote.tracing import trace_headers; "
        "print(trace_headers(), [name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[] []"


def test_a_request_belongs_to_the_span_that_is_under_way():
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    api = pytest.importorskip("opentelemetry.trace")
    tracer = trace.TracerProvider(shutdown_on_exit=False).get_tracer("test")
    assert trace_headers() == []
    with stub(honestly) as service, RemoteIndex(service.address, timeout=20) as index:
        with tracer.start_as_current_span("asking") as span:
            index.align(REQUEST)
        index.align(REQUEST)
    context = span.get_span_context()
    wanted = f"traceparent: 00-{api.format_trace_id(context.trace_id)}-{api.format_span_id(context.span_id)}-0"
    heads = [asked.head for asked in service.asked]
    assert wanted in heads[0]
    assert "traceparent" not in heads[1]


def test_a_traces_state_goes_with_it_and_baggage_does_not():
    api = pytest.importorskip("opentelemetry.trace")
    baggage = pytest.importorskip("opentelemetry.baggage")
    context_api = pytest.importorskip("opentelemetry.context")
    state = api.TraceState([("vendor", "value")])
    context = api.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=api.TraceFlags(0), trace_state=state)
    token = context_api.attach(
        baggage.set_baggage("user", "alice", api.set_span_in_context(api.NonRecordingSpan(context)))
    )
    try:
        assert trace_headers() == [
            (b"traceparent", b"00-00000000000000000000000000000abc-0000000000000def-00"),
            (b"tracestate", b"vendor=value"),
        ]
    finally:
        context_api.detach(token)


def test_opentelemetry_that_is_imported_only_by_half_so_far(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", ModuleType("opentelemetry.trace"))
    assert trace_headers() == []
