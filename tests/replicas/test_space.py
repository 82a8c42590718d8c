"""Names and signatures of spaces."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import Namespace
from contextpilot_rag.replicas.space import Names, Space

SPACE = Space("tenant:acme", Namespace("acme", "model", "corpus"))
OTHERS = [
    Space("tenant:acm", Namespace("acme", "model", "corpus")),
    Space("tenant:acme", Namespace("acm", "emodel", "corpus")),
    Space("tenant:acme", Namespace("acme", "modelcorpus", "")),
    Space("tenant:acme", Namespace("acme", "", "modelcorpus")),
    Space("tenant:acme", Namespace("other", "model", "corpus")),
    Space("", Namespace("acme", "model", "corpus")),
    Space("pilot", Namespace()),
]
words = st.text(max_size=8) | st.sampled_from(["a", "ab", "b", "", "\ud800", "a\0"])
spaces = st.builds(Space, words, st.builds(Namespace, words, words, words))


def test_a_stream_s_name_tells_nothing():
    name = Names("secret").stream(SPACE)
    assert re.fullmatch(r"[0-9a-f]{32}", name)
    assert name != Names("other").stream(SPACE)


def test_all_who_share_a_secret_agree():
    one, other = Names("secret"), Names("secret", "another-prefix")
    assert one.stream(SPACE) == other.stream(SPACE)
    assert one.key(SPACE) == other.key(SPACE)
    assert other.signed(SPACE, one.mac(SPACE, b"a", b"b"), b"a", b"b")


@given(spaces, spaces)
def test_two_spaces_never_share_a_stream_or_a_signature(one, other):
    names = Names("secret")
    assert (names.stream(one) == names.stream(other)) is (one == other)
    assert names.signed(other, names.mac(one, b"data"), b"data") is (one == other)
    same_tenant = (one.pool, one.namespace.tenant) == (other.pool, other.namespace.tenant)
    assert (names.key(one) == names.key(other)) is same_tenant


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_signed_for_one_space_is_good_for_no_other(other):
    names = Names("secret")
    assert not names.signed(other, names.mac(SPACE, b"data"), b"data")


@given(st.lists(st.binary(max_size=4), max_size=3), st.lists(st.binary(max_size=4), max_size=3))
def test_a_signature_is_of_these_parts_alone(parts, others):
    names = Names("secret")
    assert names.signed(SPACE, names.mac(SPACE, *parts), *others) is (parts == others)


def test_what_is_damaged_or_signed_with_another_secret_is_not_signed():
    names = Names("secret")
    mac = names.mac(SPACE, b"data")
    assert len(mac) == 16
    for wrong in (b"", mac[:-1], mac + b"\0", bytes([mac[0] ^ 1]) + mac[1:], Names("").mac(SPACE, b"data")):
        assert not names.signed(SPACE, wrong, b"data")


def test_heads_are_the_caller_s_to_leave_out():
    """A space is without a head; names look at tenant, model and corpus alone."""
    headed = replace(SPACE, namespace=replace(SPACE.namespace, head="head"))
    assert Names("secret").stream(headed) == Names("secret").stream(SPACE)
