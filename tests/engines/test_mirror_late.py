"""Who begins to listen late hears of ends of prompts only, and has to find out whose they are."""

from __future__ import annotations

import pytest

from contextpilot_rag.engines.kv import Removed
from contextpilot_rag.engines.mirror import Changes, Mirror
from tests.engines.world import ONE, SIZE, A, B, keys, simple, told
from tests.resident import resident_tokens


def late(salt=None, cached=True, mirror=None, space="t", question=9, base=0):
    """A mirror that hears of the end of a prompt only; what to say when it is covered."""
    mirror = mirror or Mirror()
    tokens, where = simple([A, B], salt, question=question)
    mirror.apply(ONE, [told(tokens, base, parent=base + 3, start=4)])
    return mirror, lambda: mirror.cover(space, salt, [A, B], where, ONE, 16 if cached else None), where


@pytest.mark.parametrize("cached", [True, False])
def test_orphans_find_their_prompt(cached):
    mirror, cover, where = late("s", cached)
    assert mirror.counts().orphans == 3
    assert keys(cover().back) == [("t", ["a", "b"])]
    counts = mirror.counts()
    assert (counts.orphans, counts.adopted, counts.kv_blocks, counts.matched) == (0, 1, 7, int(cached))
    assert keys(mirror.apply(ONE, [Removed((3,))]).gone) == [("t", ["a"])]
    assert resident_tokens(mirror, where.keys, SIZE) == 12


def test_orphans_that_come_after_their_prompt_was_covered():
    mirror, (tokens, where) = Mirror(), simple([A, B])
    mirror.apply(ONE, [])
    mirror.cover("t", None, [A, B], where, ONE, 16)
    assert keys(mirror.apply(ONE, [told(tokens, parent=3, start=4)]).back) == [("t", ["a", "b"])]
    assert mirror.counts().matched == 1


def test_a_report_that_does_not_fit_keeps_orphans_alone():
    mirror, _, where = late()
    mirror.cover("t", None, [A, B], where, ONE, 8)
    assert (mirror.counts().orphans, mirror.counts().adopted) == (3, 0)


def test_equal_tokens_of_two_salts_are_nobodys():
    mirror = Mirror()
    tokens, _ = simple([A, B])
    for salt in ("acme", "other"):
        mirror.cover(salt, salt, [A, B], simple([A, B], salt)[1], ONE)
    for base in (0, 100):
        assert mirror.apply(ONE, [told(tokens, base, parent=base + 3, start=4)]) == Changes()
    counts = mirror.counts()
    assert (counts.adopted, counts.kv_blocks, counts.orphans) == (0, 0, 6)
    assert counts.unclear > 0


def test_two_runs_that_fit_are_nobodys():
    mirror, cover, _ = late("acme")
    late("other", mirror=mirror, base=100)
    assert cover().back == (("t", (A,)),), "as it was reported to be cached"
    assert (mirror.counts().adopted, mirror.counts().unclear) == (0, 1)


def test_equal_tokens_of_two_salts_are_told_apart_by_reports():
    mirror = Mirror()
    tokens, _ = simple([A, B])
    acme, other = (simple([A, B], salt)[1] for salt in ("acme", "other"))
    mirror.cover("acme", "acme", [A, B], acme, ONE, 8)
    mirror.cover("other", "other", [A, B], other, ONE, 16)
    changes = mirror.apply(ONE, [told(tokens, parent=3, start=4)])
    assert keys(changes.back) == [("other", ["a", "b"])]
    assert resident_tokens(mirror, acme.keys, SIZE) == 8
    assert keys(mirror.apply(ONE, [told(tokens, 100, parent=101, start=2)]).back) == [("acme", ["a", "b"])]


@pytest.mark.parametrize("cached", [True, False])
def test_an_adoption_that_another_salt_disputes_is_revoked(cached):
    """The end of acme's prompt came, and other's, who asked the same, was covered first."""
    mirror, cover, where = late("other", cached, space="other")
    assert keys(cover().back) == [("other", ["a", "b"])]
    acme = simple([A, B], "acme")[1]
    assert keys(mirror.cover("acme", "acme", [A, B], acme, ONE, 16 if cached else None).gone) == (
        [("other", ["a", "b"])] if cached else [("other", ["a"])]
    )
    assert resident_tokens(mirror, where.keys, SIZE) == (16 if cached else 0)
    assert resident_tokens(mirror, acme.keys, SIZE) == (16 if cached else 0), "what the engine reported itself"
    assert mirror.counts().revoked == 1
