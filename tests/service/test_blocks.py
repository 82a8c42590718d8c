"""Who a block is that came over the wire: by hash, text or id, and no two of them the same by chance."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from contextpilot_rag.identity import block_key
from contextpilot_rag.remote import wire
from contextpilot_rag.service.blocks import distinct
from contextpilot_rag.service.problems import TooLarge, Unusable
from contextpilot_rag.service.settings import ServiceSettings


def found(*blocks):
    return distinct([wire.BlockIn(**block) for block in blocks], ServiceSettings())


@pytest.mark.parametrize("length", [1, 64, 65, 80])
def test_an_id_is_no_text_and_no_hash(length):
    name = "L" * length
    for text in (name, f"id {name}", f"id:{name}"):
        assert found({"text": text}, {"id": name, "tokens": 50}).merged == {}
    key = found({"id": name, "tokens": 5}).refs[0].key
    digest = hashlib.blake2b(name.encode(), digest_size=32, person=b"id").hexdigest()
    for hashed in (digest, block_key(name).hex(), block_key(f"id {name}").hex()):
        assert found({"hash": hashed, "tokens": 5}).refs[0].key != key
    if isinstance(key, bytes):
        with pytest.raises(msgspec.ValidationError, match="matching regex"):
            msgspec.json.decode(f'{{"hash": "{key.hex()}"}}', type=wire.BlockIn)


def test_a_long_id_takes_no_more_memory_than_a_hash_and_stays_itself():
    one, same, other = ({"id": "L" * 500 + end, "tokens": 5} for end in "aab")
    kept = found(one, same, other)
    assert kept.merged == {1: 0}
    assert [len(ref.key) for ref in kept.refs] == [35, 35]


def test_a_text_is_its_hash():
    hashed = {"hash": block_key("a text").hex(), "tokens": 3}
    assert found({"text": "a text "}, hashed, {"id": "a", "text": "a text\t"}).merged == {1: 0, 2: 0}
    with pytest.raises(Unusable, match="another text"):
        found({"id": "a", "text": "one"}, {"id": "a", "text": "another"})


def test_what_is_none_is_named():
    with pytest.raises(Unusable, match=r"blocks\[1\]: give an id, a hash or a text"):
        found({"id": "a", "tokens": 1}, {"tokens": 1})
    with pytest.raises(Unusable, match=r"blocks\[0\]: give its tokens, or its text"):
        found({"id": "a"})
    with pytest.raises(TooLarge, match="an id of 9000 characters"):
        found({"id": "L" * 9_000, "tokens": 1})


@pytest.mark.parametrize("repeated", [2, 100_000])
def test_marks_in_any_number_are_a_text(repeated):
    """The second would take hours if its marks were put in order: nobody else would be answered meanwhile."""
    text = "e" + "\u0301\u0316" * repeated
    assert found({"text": text}, {"text": "e"}, {"text": text + " "}).merged == {2: 0}
