"""What is forgotten over HTTP: all that was named, in one go, by whoever may."""

from __future__ import annotations

from contextpilot_rag.remote.wire import TurnIn
from contextpilot_rag.service.ledger import Ledgers
from contextpilot_rag.types import Namespace

from .harness import serving

A = {"id": "a", "tokens": 100}


def test_conversations_under_many_heads_are_forgotten_in_one_go(monkeypatch):
    asked = []
    forget = Ledgers.forget
    monkeypatch.setattr(Ledgers, "forget", lambda *given: asked.append(given[1:]) or forget(*given))
    spaces = [{"corpus": "many", "head": head} for head in ("", "b", "c")] + [{"corpus": "more"}]
    with serving() as service:
        for space in spaces:
            talk = {"namespace": space, "conversation": {"id": f"of {space.get('head')}"}}
            service.ask("POST", "/v1/align", {"blocks": [A], **talk})
        assert service.ask("DELETE", "/v1/namespaces/::many/conversations/of%20b").json()["forgotten"] == 1
        assert service.ask("DELETE", "/v1/namespaces/::many?conversations=true").json()["conversations"] == 2
        assert service.ask("DELETE", "/v1/namespaces?conversations=true").json()["conversations"] == 1
    assert asked == [(Namespace(corpus="many"), "of b"), (Namespace(corpus="many"),), (None,)]


def test_a_head_that_is_named_is_the_only_one():
    ledgers = Ledgers(10, 100, lambda: 0.0)
    for head in ("", "a", "b"):
        ledgers.turn(Namespace(corpus="c", head=head), TurnIn("t"), (), "ticket")
    assert ledgers.forget(Namespace(corpus="c", head="a")) == 1
    assert ledgers.forget(Namespace(corpus="c", head="a")) == 0
    assert ledgers.forget(Namespace(corpus="c"), "other") == 0
    assert ledgers.forget(Namespace(corpus="c")) == 2
