from __future__ import annotations

import copy
import dataclasses
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import (
    AsyncContextPilot,
    Block,
    Context,
    ContextPilot,
    LocalIndex,
    Namespace,
    Request,
    Rule,
    Settings,
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


@given(st.lists(contexts, max_size=12), st.sampled_from(["retrieved", "balanced"]), st.integers(0, 2))
def test_every_block_stands_verbatim_in_the_prompt_exactly_once(requests, order, protect_top):
    pilot = ContextPilot(order=order, min_gain=0, protect_top=protect_top)
    for request in requests:
        alignment = pilot.align(request, "Why?")
        assert {block.text for block in alignment.blocks} == {block.text for block in request}
        content = alignment.user_message
        for block in {block.text for block in request}:
            assert content.count(f"] {block}\n") == 1


@given(st.lists(texts, max_size=8))
def test_any_text_reaches_the_prompt(given_texts):
    alignment = ContextPilot().align(given_texts)
    for text in given_texts:
        assert f"] {escape(text)}\n" in alignment.user_message


# Promise 2: with nothing to gain, the retriever's order, byte for byte, without hints


@given(contexts)
def test_a_first_request_goes_out_as_retrieved(request):
    plain = ContextPilot(order="retrieved").align(request, "Why?")
    aligned = ContextPilot().align(request, "Why?")
    assert aligned.messages("System") == plain.messages("System")
    assert aligned.order_hint is None


def test_strangers_in_the_cache_change_nothing():
    pilot = ContextPilot(echo=2)
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
    pilot = ContextPilot(index)
    with caplog.at_level(logging.WARNING):
        alignments = [pilot.align([A, B], "?") for _ in range(3)]
    assert alignments[0].messages() == ContextPilot(order="retrieved").align([A, B], "?").messages()
    assert [alignment.rule for alignment in alignments] == [Rule.FAILED_OPEN] * 3
    assert alignments[0].reason == "the index failed; the retriever's order was kept"
    assert pilot.failures == 3
    assert len(caplog.records) == 1


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


# What goes in


def test_all_ways_to_give_blocks():
    forms = [A, ("a2", "x"), {"text": "y", "id": "m", "tokens": 5, "score": 0.5, "page": 3}, "plain"]
    alignment = ContextPilot().align(iter(forms))
    assert [block.text for block in alignment.blocks] == [A.text, "x", "y", "plain"]
    assert list(alignment.labels.values())[:3] == ["a", "a2", "m"]
    assert alignment.request.blocks[2].tokens == 5
    assert ContextPilot().align(Context((A, B), "q")).labels == {1: "a", 2: "b"}


@pytest.mark.parametrize("identity", [0, -(2**63), 2**31, "é", b"x", (1, "x"), frozenset({1}), 1.5, True, object()])
def test_ids_of_any_hashable_kind(identity):
    assert ContextPilot().align([(identity, "text")]).labels == {1: identity}


def test_a_repeated_text_is_placed_once_and_keeps_all_its_ids():
    alignment = ContextPilot().align([("x", "same"), ("y", "other"), ("z", "same"), ("x", "same")])
    assert [block.text for block in alignment.blocks] == ["same", "other"]
    assert alignment.labels == {1: "x", 2: "y"}
    assert alignment.ids == {1: ("x", "z"), 2: ("y",)}


class Loud(str):
    """Is one text and shows another."""

    __slots__ = ()

    def __format__(self, spec):
        return "something else"

    __str__ = __repr__ = lambda self: "something else"

    def __contains__(self, item):
        return False

    def encode(self, *_):
        return b"same"


def test_subclasses_of_str_are_taken_by_their_text():
    alignment = ContextPilot().align([Loud("[2] one"), ("x", Loud("two"))], Loud("why?"))
    assert alignment.user_message == "<documents>\n[1] \\[2] one\n\n[2] two\n</documents>\n\nwhy?"
    assert alignment.messages(Loud("system"))[0]["content"] == "system"


def test_a_real_id_goes_before_none():
    assert ContextPilot().align(["same", ("a", "same")]).labels == {1: "a"}


def test_line_ends_are_part_of_a_text():
    assert len(ContextPilot().align(["a\r\n", "a\n"]).blocks) == 2


def test_empty_one_and_thousands():
    pilot = ContextPilot()
    assert pilot.align([], "Why?").messages() == [{"role": "user", "content": "Why?"}]
    assert pilot.align([A]).order == (0,)
    many = [f"block {number}" for number in range(5_000)]
    pilot.align(many)
    assert pilot.align(many[::-1]).order == tuple(reversed(range(5_000)))


@pytest.mark.parametrize(
    ("blocks", "error", "message"),
    [
        ([None], errors.InvalidBlock, "block 0 of the request: give a Block, a text"),
        (["fine", 3], errors.InvalidBlock, "block 1 of the request"),
        ([("id", b"bytes")], errors.InvalidBlock, "block 0 of the request: block 'id': text must be str, not bytes"),
        ([([], "text")], errors.InvalidBlock, "not hashable"),
        ([{"id": 1}], errors.InvalidBlock, "mapping with 'text'"),
        ([{"text": "x", "tokens": 0}], errors.InvalidBlock, "tokens must be a positive int, not 0"),
        ([{"text": "x", "tokens": True}], errors.InvalidBlock, "tokens must be"),
        (
            [("a", "x"), ("a", "y")],
            errors.ConflictingBlocks,
            "block 1 of the request: id 'a' came before with another text",
        ),
        ([["id", "text"]], errors.InvalidBlock, "not list"),
        ([(10**5000, "x"), (10**5000, "y")], errors.ConflictingBlocks, "came before with another text"),
        ([{"text": "x", "tokens": -(10**5000)}], errors.InvalidBlock, "tokens must be a positive int"),
        ("one text", errors.InvalidBlock, "sequence of blocks, not one str"),
        ({"text": "x"}, errors.InvalidBlock, "sequence of blocks"),
        (None, errors.InvalidBlock, "sequence of blocks"),
    ],
)
def test_bad_blocks_get_one_clear_error_and_change_nothing(blocks, error, message):
    pilot = ContextPilot()
    with pytest.raises(error, match=message):
        pilot.align(blocks, "?")
    assert pilot.stats().requests == 0
    assert pilot.failures == 0


def test_a_question_that_is_no_text():
    with pytest.raises(errors.InvalidBlock, match="question must be str, not int"):
        ContextPilot().align([A], 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ContextPilot("embeded"), "unknown index 'embeded'"),
        (lambda: ContextPilot(None), "unknown index None"),  # type: ignore[arg-type]
        (lambda: ContextPilot(tokenizer="gpt2"), "not 'gpt2'"),
        (lambda: ContextPilot(namespace=3), "a namespace is a Namespace or a str"),  # type: ignore[arg-type]
        (lambda: ContextPilot(namespace=""), "must not be empty"),
        (lambda: Namespace(tenant=42), "a namespace's tenant must be str, not int"),  # type: ignore[arg-type]
        (lambda: ContextPilot(settings={}), "must be a Settings object"),  # type: ignore[arg-type]
        (lambda: ContextPilot(minimum_gain=1), "unknown setting 'minimum_gain'"),  # type: ignore[call-arg]
        (lambda: ContextPilot().align([A], ordr="balanced"), "did you mean 'order'"),  # type: ignore[call-arg]
        (lambda: ContextPilot().align([A], order="fastest"), "order: "),  # type: ignore[arg-type]
        (lambda: ContextPilot().align([A], max_blocks=5), "max_blocks belongs to the pilot"),  # type: ignore[call-arg]
    ],
)
def test_unknown_settings(make, message):
    with pytest.raises(errors.SettingsError, match=message):
        make()


# What comes out


def test_hints_labels_and_echo_of_a_changed_order():
    pilot = ContextPilot(min_gain=0)
    pilot.align([B, C], "?")
    alignment = pilot.align([A, C, B], "Why?", key="q1", echo=1)
    assert alignment.labels == {1: "b", 2: "c", 3: "a"}
    assert alignment.order_hint == "Order of relevance, best first: [3] > [2] > [1]"
    assert alignment.echoed == ()  # the best block stands last already
    assert alignment.request.key == "q1"
    assert alignment.user_message.endswith("\n</documents>\n\n" + alignment.order_hint + "\n\nWhy?")


def test_the_best_blocks_are_echoed_after_the_last_with_their_own_labels():
    pilot = ContextPilot(min_gain=0)
    pilot.align([B, A], "?")
    alignment = pilot.align([A, B, C], "?", echo=2)
    assert alignment.labels == {1: "b", 2: "a", 3: "c"}
    assert alignment.echoed == (0, 1)  # second best, then the best, nearest to the question
    assert alignment.user_message.count("[2] " + A.text) == 2
    assert f"[3] {C.text}\n\n[1] {B.text}\n\n[2] {A.text}\n</documents>\n\n" in alignment.user_message


def test_an_echo_of_more_blocks_than_there_are_repeats_none():
    pilot = ContextPilot(min_gain=0)
    pilot.align([B, A], "?")
    assert pilot.align([A, B], "?", echo=9).echoed == ()  # all of them already stand among the last nine


def test_an_echo_does_not_disturb_the_shared_prefix():
    plain, echoing = ContextPilot(min_gain=0), ContextPilot(min_gain=0, echo=1)
    for pilot in (plain, echoing):
        pilot.align([B, A], "?")
        pilot.align([A, B, C], "?")
    assert plain.align([C, A, B], "?").order == echoing.align([C, A, B], "?").order


def test_hints_can_be_switched_off():
    pilot = ContextPilot(order_hint=False)
    pilot.align([A, B], "?")
    alignment = pilot.align([B, A], "?")
    assert alignment.changed
    assert alignment.order_hint is None
    assert "relevance" not in alignment.user_message


def test_shared_blocks_are_shared_bytes():
    pilot = ContextPilot()
    first = pilot.align([A, B], "One?").messages("S")
    second = pilot.align([C, B, A], "Two?").messages("S")
    shared = first[1]["content"].index("\n</documents>")
    assert second[1]["content"][:shared] == first[1]["content"][:shared]


# Learning


def test_observe_counts_and_returns_what_was_reported():
    pilot = ContextPilot()
    alignment = pilot.align([A, B], "?")
    response = {"usage": {"prompt_tokens": 210, "prompt_tokens_details": {"cached_tokens": 96}}}
    assert pilot.observe(alignment, response) == Usage(210, 96)
    assert pilot.stats().reported_cached_tokens == 96


@pytest.mark.parametrize("response", [None, "text", 3, {}, {"usage": None}, {"usage": {"prompt_tokens": "many"}}])
def test_observe_takes_anything(response):
    pilot = ContextPilot()
    assert pilot.observe(pilot.align([A]), response) is None
    assert pilot.stats().observed == 0


@pytest.mark.parametrize("thing", [None, "alignment", Usage(1)])
def test_observe_needs_an_alignment(thing):
    pilot = ContextPilot()
    with pytest.raises(errors.InputError, match="observe takes what align returned"):
        pilot.observe(thing, Usage(1))
    assert pilot.failures == 0


def test_a_system_prompt_that_is_no_text():
    with pytest.raises(errors.InvalidBlock, match="system prompt must be str, not int"):
        ContextPilot().align([A]).messages(5)


def test_token_counts_follow_what_the_engine_counts():
    pilot = ContextPilot()
    before = pilot.align([A]).request.tokens
    for _ in range(30):
        alignment = pilot.align([A], "?")
        messages = alignment.messages("a system prompt that counts " * 50)
        pilot.observe(alignment, Usage(prompt_tokens=sum(len(message["content"]) for message in messages) // 2))
    assert (before, pilot.align([A]).request.tokens) == (100, 200)


def test_a_prompt_that_was_put_together_elsewhere_teaches_nothing_about_lengths():
    pilot = ContextPilot()
    pilot.observe(pilot.align([A], "?"), Usage(prompt_tokens=400))
    assert pilot.align([A]).request.tokens == 100


def test_a_tokenizer_is_used_where_given():
    pilot = ContextPilot(tokenizer=len)
    assert pilot.align([A]).request.tokens == 400


def raises(text):
    raise RuntimeError("no such model")


@pytest.mark.parametrize("tokenizer", [raises, lambda text: None, lambda text: text.encode("utf-8", "x")])
def test_a_tokenizer_that_fails_costs_only_exactness(tokenizer):
    pilot = ContextPilot(tokenizer=tokenizer)
    assert pilot.align([A]).request.tokens == 100
    assert pilot.failures == 1


def test_a_contexts_own_question_is_asked_unless_another_is_given():
    context = Context((A,), "Own?")
    assert ContextPilot().align(context).question == "Own?"
    assert ContextPilot().align(context, "Other?").question == "Other?"


def test_what_the_retrievers_order_would_have_had_is_counted_beside():
    pilot = ContextPilot(min_gain=0)
    for order in ([A, B], [B, A], [A, B]):
        pilot.align(order, "?")
    stats = pilot.stats()
    assert (stats.block_tokens, stats.predicted_cached_tokens, stats.retrieved_cached_tokens) == (600, 400, 200)


def test_pilots_can_share_an_index():
    index = LocalIndex()
    ContextPilot(index).align([A, B], "?")
    assert ContextPilot(index).align([B, A], "?").changed


def test_settings_come_from_the_environment_unless_given(monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_ORDER", "retrieved")
    assert ContextPilot().settings.order == "retrieved"
    assert ContextPilot(order="balanced").settings.order == "balanced"
    assert ContextPilot(settings=Settings()).settings.order == "balanced"


async def test_the_async_pilot_speaks_the_same_words():
    pilot = AsyncContextPilot(min_gain=0, namespace="acme")
    first = await pilot.align([A, B], "?")
    second = await pilot.align([B, A], "?", key=7, order_hint=False)
    assert (first.changed, second.changed, second.request.key, second.order_hint) == (False, True, 7, None)
    assert await pilot.observe(second, Usage(10, 5)) == Usage(10, 5)
    assert (await pilot.stats()).requests == 2
    await pilot.forget("acme")
    assert (await pilot.stats()).namespaces == 0
    assert (pilot.failures, pilot.settings.min_gain) == (0, 0)
