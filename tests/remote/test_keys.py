from __future__ import annotations

import enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import BlockRef
from contextpilot_rag.errors import InputError
from contextpilot_rag.remote.keys import block_in
from contextpilot_rag.service.blocks import distinct
from contextpilot_rag.service.settings import ServiceSettings

SETTINGS = ServiceSettings()
texts = st.text(st.characters(), max_size=80) | st.text("a\udc80", max_size=300)
keys = st.binary(max_size=40) | texts | st.integers() | st.integers(-3, 3)


def named(key):
    """The key that the service gives the block."""
    return distinct([block_in(BlockRef(key, 10))], SETTINGS).refs[0].key


@given(st.lists(keys, max_size=20))
def test_two_keys_never_meet_and_equal_ones_always_do(many):
    assert len({named(key) for key in many}) == len(set(many))


def test_a_look_alike_is_another():
    numbers = [7, "7", b"7", b"7" * 8, "7" * 64, "7" * 65, b"7" * 33, "", b"", 0, "0", -7]
    assert len({named(key) for key in numbers}) == len(numbers)


def test_kinds_of_a_key_that_are_equal_are_one():
    class Name(str):
        __slots__ = ()

        def __str__(self):
            return "something else"

    class Color(str, enum.Enum):
        RED = "red"

    assert named(Name("a")) == named("a") == "a"
    assert named(Color.RED) == named("red")
    assert named(True) == named(1)


@pytest.mark.parametrize("key", [None, 1.0, ("a",), frozenset(), object()])
def test_other_types_are_named(key):
    with pytest.raises(InputError, match="a block's key must be bytes, str or int"):
        block_in(BlockRef(key, 10))


def test_a_hash_of_the_pilots_goes_as_it_is():
    assert block_in(BlockRef(bytes(range(16)), 10)).hash == bytes(range(16)).hex()
