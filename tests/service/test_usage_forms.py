"""Usage as engines report it: each documented form is taken as it is, and what is not reported is no zero."""

from __future__ import annotations

import pytest

from contextpilot_rag.types import Usage

from .harness import serving

BLOCKS = {"blocks": [{"id": "a", "tokens": 100}]}


@pytest.fixture(scope="module")
def service():
    with serving() as running:
        yield running


def counted(service, usage):
    """The reply to a report, and what the service made of it."""
    seen = []
    tenant = service.hub.service.tenant("")

    class Watcher:
        def aligned(self, *given):
            pass

        def observed(self, tenant, alignment, engine, usage):
            seen.append(usage)

    ticket = service.ask("POST", "/v1/align", BLOCKS).json()["ticket"]
    before = tenant._watchers
    tenant._watchers = [*before, Watcher()]
    try:
        reply = service.ask("POST", "/v1/observe", {"ticket": ticket, "usage": usage})
    finally:
        tenant._watchers = before
    return reply, seen


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        ({"prompt_tokens": 10, "cached_tokens": 4, "completion_tokens": 2}, Usage(10, 4, 2)),
        (  # vLLM, chat completions
            {
                "prompt_tokens": 10,
                "total_tokens": 12,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 4},
            },
            Usage(10, 4, 2),
        ),
        (
            {"prompt_tokens": 10, "total_tokens": 12, "completion_tokens": 2, "prompt_tokens_details": None},
            Usage(10, None, 2),
        ),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": None}}, Usage(10, None, None)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0}}, Usage(10, 0, None)),
        (  # responses
            {
                "input_tokens": 10,
                "input_tokens_details": {"cached_tokens": 4},
                "output_tokens": 2,
                "output_tokens_details": {"reasoning_tokens": 1},
                "total_tokens": 12,
            },
            Usage(10, 4, 2),
        ),
        ({"prompt_tokens": 10, "completion_tokens_details": {"x": [1]}, "cost": 0.1}, Usage(10, None, None)),
        ({}, Usage()),
        (None, Usage()),
    ],
)
def test_what_engines_report_is_taken_as_it_is(service, usage, found):
    reply, seen = counted(service, usage)
    assert (reply.status, seen) == (200, [found])


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": "10"},
        {"prompt_tokens": -1},
        {"cached_tokens": 0.5},
        {"input_tokens_details": {"cached_tokens": -1}},
        {"prompt_tokens_details": 4},
        [],
    ],
)
def test_what_is_no_usage_is_refused(service, usage):
    reply, seen = counted(service, usage)
    assert (reply.status, seen) == (422, [])


def test_fields_that_are_not_documented_are_ignored_there_alone(service):
    ticket = service.ask("POST", "/v1/align", BLOCKS).json()["ticket"]
    assert service.ask("POST", "/v1/observe", {"ticket": ticket, "usage": {}, "total_tokens": 1}).status == 422
