"""Spans: around each operation, in the caller's trace, with counts and nothing that names anybody."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from contextpilot_rag.service import tracing
from contextpilot_rag.service.auth import OpenGate
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.hub import Hub
from contextpilot_rag.service.life import Life
from contextpilot_rag.service.metrics import Metrics
from contextpilot_rag.service.problems import NotFound
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.service.tracing import Spans
from tests.service.harness import serving

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def spans(exporter):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Spans(provider)


@pytest.fixture
def service(spans):
    settings = ServiceSettings(port=0)
    metrics = Metrics(settings)
    hub = Hub(settings, Service(settings, watchers=[metrics, spans]), OpenGate(), metrics=metrics, tracer=spans)
    with serving(life=Life(hub)) as running:
        yield running


def body(*ids, **more):
    return {"blocks": [{"id": name, "tokens": 50} for name in ids], **more}


def test_an_operation_is_a_span_of_the_callers_trace_with_counts(service, exporter):
    secret = {"namespace": {"tenant": "their customer"}, "engine": "their engine", "key": "their key"}
    sent = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
    first = service.ask("POST", "/v1/align", body("secret-a", "b", **secret), **sent).json()
    service.ask("POST", "/v1/align", body("b", "secret-a", **secret), **sent)
    service.ask("POST", "/v1/observe", {"ticket": first["ticket"], "usage": {"prompt_tokens": 90, "cached_tokens": 16}})
    align, again, observe = exporter.get_finished_spans()
    assert f"{align.context.trace_id:032x}" == TRACE
    assert f"{align.parent.span_id:016x}" == PARENT
    assert align.kind is trace.SpanKind.SERVER
    assert align.name == "POST /v1/align"
    assert align.attributes["http.route"] == "/v1/align"
    assert align.attributes["contextpilot.blocks"] == 2
    assert align.attributes["contextpilot.predicted_cached_tokens"] == 0
    assert again.attributes["contextpilot.predicted_cached_tokens"] == 100
    assert again.attributes["contextpilot.requests_changed"] == 1
    assert observe.attributes["contextpilot.reported_cached_tokens"] == 16
    assert observe.parent is None
    told = "".join(span.to_json() for span in (align, again, observe))
    for name in ("secret", "customer", "their", first["ticket"]):
        assert name not in told


def test_a_batch_is_one_span_with_sums(service, exporter):
    batch = {"requests": [body("a", "b"), body("b", "a"), body("c")]}
    assert service.ask("POST", "/v1/align/batch", batch).status == 200
    (span,) = exporter.get_finished_spans()
    assert span.attributes["contextpilot.requests"] == 3
    assert span.attributes["contextpilot.prompt_tokens"] == 250
    assert span.attributes["contextpilot.predicted_cached_tokens"] == 100


def test_what_is_refused_has_its_kind_and_not_its_message(service, exporter):
    assert service.ask("POST", "/v1/align", body("a", "secret", more=1)).status == 422
    (span,) = exporter.get_finished_spans()
    assert span.attributes["error.type"] == "unusable"
    assert span.attributes["http.response.status_code"] == 422
    assert span.status.is_unset, "the client's fault is not the server's"
    assert not span.events


@pytest.mark.parametrize("sent", ["", "nonsense", "00-" + "0" * 32 + f"-{PARENT}-01", f"00-{TRACE}-{PARENT}-01" * 40])
def test_a_trace_that_is_none_is_left_alone(service, exporter, sent):
    assert service.ask("POST", "/v1/align", body("a"), traceparent=sent).status == 200
    (span,) = exporter.get_finished_spans()
    assert span.parent is None


def test_a_failure_of_the_service_is_an_error(spans, exporter):
    with pytest.raises(ZeroDivisionError), spans.span("GET /x", {}):
        raise ZeroDivisionError("secret")
    with pytest.raises(NotFound), spans.span("GET /x", {}):
        raise NotFound("secret")
    failed, missing = exporter.get_finished_spans()
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert failed.attributes["error.type"] == "ZeroDivisionError"
    assert missing.status.is_unset
    assert "secret" not in failed.to_json() + missing.to_json()


def test_counts_outside_of_an_operation_go_nowhere(spans, exporter):
    Service(ServiceSettings(), watchers=[spans]).tenant("").forget()
    assert not exporter.get_finished_spans()


def test_spans_are_made_only_where_somebody_has_set_them_up():
    code = """
import sys
from contextpilot_rag.service import tracing
assert tracing.found() is None
assert not any(name.startswith("opentelemetry") for name in sys.modules), "nobody asked for it"
from opentelemetry import trace
assert tracing.found() is None
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider(shutdown_on_exit=False))
assert isinstance(tracing.found(), tracing.Spans)
sys.modules["opentelemetry"] = None
assert tracing.found() is None, "and nothing without the package"
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr


def test_here_nobody_has():
    assert tracing.found() is None
