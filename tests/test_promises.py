"""The promises of the README, each as a test."""

from __future__ import annotations

import copy
import dataclasses
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import (
    Block,
    ContextPilot,
    LocalIndex,
    Namespace,
    Request,
    Rule,
    Usage,
    errors,
)
from contextpilot_rag.prompt.escape import escape
from tests.strategies import contexts, texts

A, B, C = (Block(letter * 400, id=letter) for letter in "abc")


class BrokenIndex:
    def align(self, request):
        raise RuntimeError("disk on fire")

    observe = forget = stats = align


class LyingIndex(LocalIndex):
    """Answers with something that no index may answer."""

    def __init__(self, **lies):
        super().__init__()
        self.lies = lies

    def align(self, request):
        return dataclasses.replace(super().align(request), **self.lies)


# Promise 1: the set of blocks never changes


@given(st.lists(contexts, max_size=12), st.sampled_from(["retrieved", "balanced", "throughput"]), st.integers(0, 2))
def test_every_block_stands_verbatim_in_the_prompt_exactly_once(requests, order, protect_top):
    pilot = ContextPilot(order=order, min_gain=0, protect_top=protect_top, order_hint=True)
    for request in requests:
        alignment = pilot.align(request, "Why?")
        assert {block.text for block in alignment.blocks} == {block.text for block in request}
        content = alignment.user_message
        for block in {block.text for block in request}:
            assert content.count(f"] {block}\n") == 1


@given(st.lists(texts, max_size=8))
def test_any_text_reaches_the_prompt(given_texts):
    alignment = ContextPilot(normalise=False).align(given_texts)
    for text in given_texts:
        assert f"] {escape(text)}\n" in alignment.user_message


# Promise 2: with nothing to gain, the retriever's order, byte for byte, without hints


@given(contexts)
def test_a_first_request_goes_out_as_retrieved(request):
    plain = ContextPilot(order="retrieved").align(request, "Why?")
    aligned = ContextPilot(order_hint=True).align(request, "Why?")
    assert aligned.messages("System") == plain.messages("System")
    assert aligned.order_hint is None


def test_strangers_in_the_cache_change_nothing():
    pilot = ContextPilot(echo=2, order_hint=True)
    pilot.align([A, B], "?")
    assert pilot.align([C], "Why?").messages() == ContextPilot().align([C], "Why?").messages()


# Promise 3: fails open


@pytest.mark.parametrize(
    "index",
    [
        BrokenIndex(),
        LyingIndex(order=(0, 0)),
        LyingIndex(order=(0, 1, 2)),
        LyingIndex(order=()),
        LyingIndex(order=(1.0, 0.0)),
        LyingIndex(order=None),
        LyingIndex(request=Request(())),
        LyingIndex(predicted_cached_tokens=None),
        LyingIndex(predicted_cached_tokens=-5),
        LyingIndex(cached_blocks=10**400),
        LyingIndex(rule="popular"),
    ],
)
def test_a_broken_index_costs_only_the_gain(index, caplog):
    pilot = ContextPilot(index, order_hint=True)
    with caplog.at_level(logging.WARNING):
        alignments = [pilot.align([A, B], "?") for _ in range(3)]
    assert alignments[0].messages() == ContextPilot(order="retrieved").align([A, B], "?").messages()
    assert [alignment.rule for alignment in alignments] == [Rule.FAILED_OPEN] * 3
    assert alignments[0].reason == "the index failed; the retriever's order was kept"
    assert pilot.failures == 3
    assert sum("contextpilot" in record.name for record in caplog.records) == 1


def test_an_order_that_can_be_read_only_once_loses_nothing():
    alignment = ContextPilot(LyingIndex(order=iter((1, 0)))).align([A, B], "?")
    assert [block.id for block in alignment.blocks] == ["b", "a"]


def test_a_broken_index_does_not_break_observe():
    pilot = ContextPilot(BrokenIndex())
    alignment = pilot.align([A], "?")
    assert pilot.observe(alignment, {"usage": {"prompt_tokens": 9}}) == Usage(prompt_tokens=9)
    assert pilot.failures == 2


def test_raises_if_asked_to():
    pilot = ContextPilot(BrokenIndex(), on_error="raise")
    with pytest.raises(errors.IndexFailed, match="disk on fire"):
        pilot.align([A], "?")


# Promise 4: namespaces


def test_namespaces_share_nothing_and_have_their_own_salt():
    pilot = ContextPilot()
    pilot.align([A, B], "?", namespace="acme")
    other = pilot.align([B, A], "?", namespace="other")
    same = pilot.align([B, A], "?", namespace=Namespace(tenant="acme"))
    assert (other.changed, same.changed) == (False, True)
    assert other.extra_body["cache_salt"] != same.extra_body["cache_salt"]


def test_the_default_namespace_has_no_salt():
    assert ContextPilot().align([A]).extra_body == {}


def test_the_pilots_own_namespace_is_used_unless_another_is_given():
    pilot = ContextPilot(namespace="acme")
    assert pilot.align([A]).request.namespace == Namespace(tenant="acme")
    assert pilot.align([A], namespace=Namespace(corpus="x")).request.namespace == Namespace(corpus="x")


def test_forgetting_a_namespace_leaves_the_others():
    pilot = ContextPilot()
    for name in ("acme", "other"):
        pilot.align([A, B], "?", namespace=name)
    pilot.forget("acme")
    assert not pilot.align([B, A], "?", namespace="acme").changed
    assert pilot.align([B, A], "?", namespace="other").changed
    pilot.forget()
    assert pilot.stats().namespaces == 0


# Promise 8: the caller's objects are never changed


def test_the_callers_objects_are_not_changed():
    given_blocks = [{"id": 1, "text": "one"}, {"id": 2, "text": "two"}]
    before = copy.deepcopy(given_blocks)
    pilot = ContextPilot()
    for order in (given_blocks, given_blocks[::-1]):
        messages = pilot.align(order, "?").messages("s")
        messages.clear()
    assert given_blocks == before
