"""What goes into a pilot: every form of block, and every kind of nonsense."""

from __future__ import annotations

import pytest

from contextpilot_rag import (
    Block,
    Context,
    ContextPilot,
    Namespace,
    errors,
)

A, B, C = (Block(letter * 400, id=letter) for letter in "abc")


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


@pytest.mark.parametrize(
    ("one", "other"),
    [("a\r\nb", "a\nb"), ("a  \nb", "a\nb"), ("a ", "a"), ("caf\u00e9", "cafe\u0301"), ("a\rb", "a\nb")],
)
def test_copies_in_another_form_are_placed_once_as_the_first_was(one, other):
    alignment = ContextPilot().align([("x", one), ("y", other)])
    assert [block.text for block in alignment.blocks] == [one]
    assert alignment.ids == {1: ("x", "y")}
    assert len(ContextPilot(normalise=False).align([("x", one), ("y", other)]).blocks) == 2


@pytest.mark.parametrize(
    ("one", "other"), [(" a", "a"), ("a\n", "a"), ("a  b", "a b"), ("A", "a"), ("1.0", "1"), ("a\x0c", "a")]
)
def test_what_carries_meaning_makes_another_text(one, other):
    assert len(ContextPilot().align([one, other]).blocks) == 2


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
        (lambda: ContextPilot(3), "unknown index 3"),  # type: ignore[arg-type]
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
