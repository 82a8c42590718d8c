"""What engines tell of their caches moves a fleet's trees."""

from __future__ import annotations

import pytest

from contextpilot_rag import Namespace, Request, Usage
from contextpilot_rag.engines.kv import Cleared, Removed
from tests.engines.fleets import X, Y, covering, followed, stored
from tests.index.conformance import A, B


def test_events_move_the_tree_of_their_engine_alone():
    fleet = followed("one", "two")
    first, other = fleet.align(Request((A, B))), fleet.align(Request((X, Y)))
    assert (first.engine, other.engine) == ("one", "two")
    for alignment in (first, other):
        tokens, found = covering(alignment)
        fleet.events(alignment.engine, 0, [stored(tokens)])
        fleet.observe(alignment, Usage(found.tokens, 0))
        fleet.cover(alignment, None, found, 0)
    again = fleet.align(Request((B, A)))
    assert (again.engine, again.order, again.predicted_cached_tokens) == ("one", (1, 0), 200)
    assert again.expected_cached_tokens is not None
    assert 192 <= again.expected_cached_tokens <= 223
    event = stored(covering(first)[0])
    fleet.events("two", 0, [Removed(event.hashes[-1:])])  # the other one never had it
    assert fleet.predict(Request((A, B))) == 200
    fleet.events("one", 0, [Removed(event.hashes[-1:])])  # the last KV block is where B ends
    assert fleet.predict(Request((A, B))) == 100
    assert fleet.predict(Request((X, Y))) == 200
    fleet.events("one", 0, [stored(covering(first)[0], first=len(event.hashes) - 1)])
    assert fleet.predict(Request((A, B))) == 200
    fleet.events("one", 0, [Cleared()])
    assert fleet.predict(Request((A, B))) == 0
    assert fleet.predict(Request((X, Y))) == 200
    fleet.lost("two", 0, "it was restarted")
    assert fleet.predict(Request((X, Y))) == 0
    one, two = fleet.engines()
    assert (one.events, one.lost, two.events, two.lost, one.last_event) == (4, 0, 2, 1, 0.0)
    assert one.kv_blocks == two.kv_blocks == 0


def test_with_another_router_a_path_is_there_as_long_as_one_engine_has_it():
    fleet = followed("one", "two", routing="external")
    alignment = fleet.align(Request((A, B)))
    tokens, found = covering(alignment)
    for name in ("one", "two"):
        fleet.events(name, 0, [stored(tokens)])
    fleet.cover(alignment, None, found, None)
    fleet.events("one", 0, [Removed(stored(tokens).hashes)])
    assert fleet.predict(Request((A, B))) == 200
    fleet.alive("two", False)
    assert fleet.predict(Request((A, B))) == 0
    fleet.events("one", 0, [stored(tokens)])
    assert fleet.predict(Request((A, B))) == 200
    fleet.alive("one", False)
    assert fleet.predict(Request((A, B))) == 0


def test_an_engine_that_is_back_has_what_its_events_say():
    fleet = followed("one")
    alignment = fleet.align(Request((A, B)))
    tokens, found = covering(alignment)
    fleet.events("one", 0, [stored(tokens)])
    fleet.cover(alignment, None, found, 0)
    fleet.alive("one", False)
    fleet.alive("one", True)
    assert fleet.predict(Request((A, B))) == 0
    fleet.events("one", 0, [stored(tokens)])
    assert fleet.predict(Request((A, B))) == 200


def test_forgetting_a_tenant_outlasts_the_engines_events():
    fleet = followed("one")
    space = Namespace(tenant="acme", head="h")
    alignment = fleet.align(Request((A, B), space))
    tokens, found = covering(alignment)
    fleet.cover(alignment, None, found, 0)
    fleet.forget(Namespace(tenant="acme"))
    fleet.events("one", 0, [stored(tokens)])
    assert fleet.stats().namespaces == 0
    assert fleet.predict(Request((A, B), space)) == 0


def test_what_one_cache_loses_its_tree_loses_also_where_no_tokens_were_known():
    for tell in (lambda fleet: fleet.events("one", 0, [Cleared()]), lambda fleet: fleet.lost("one", 0, "a gap")):
        fleet = followed("one")
        fleet.align(Request((A, B)))
        tell(fleet)
        assert fleet.predict(Request((A, B))) == 0


def test_what_is_stored_after_all_was_cleared_is_there():
    fleet = followed("one")
    alignment = fleet.align(Request((A, B)))
    tokens, found = covering(alignment)
    fleet.cover(alignment, None, found, 0)
    fleet.events("one", 0, [stored(tokens), Cleared(), stored(tokens)])
    assert fleet.predict(Request((A, B))) == 200


def test_of_a_pool_one_cache_loses_only_its_own():
    fleet = followed("one", "two", routing="external")
    fleet.align(Request((A, B)))
    fleet.events("one", 0, [Cleared()])
    fleet.lost("two", 0, "a gap")
    assert fleet.predict(Request((A, B))) == 200  # nobody knows who has it


@pytest.mark.parametrize("ranks", [1, 2])
def test_nothing_is_expected_where_nobody_knows_which_rank_will_answer(ranks):
    fleet = followed("one", ranks=ranks)
    alignment = fleet.align(Request((A, B)))
    tokens, found = covering(alignment)
    for rank in range(ranks):
        fleet.events("one", rank, [stored(tokens)])
    fleet.observe(alignment, Usage(found.tokens, 0))
    fleet.cover(alignment, None, found, 0)
    again = fleet.align(Request((A, B)))
    assert again.predicted_cached_tokens == 200
    assert (again.expected_cached_tokens is None) == (ranks > 1)
