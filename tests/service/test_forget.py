"""What is forgotten over HTTP: all that was named, in one go, by whoever may."""

from __future__ import annotations

import pytest

from contextpilot_rag.remote.wire import TurnIn
from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key
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
    assert asked == [(Namespace(corpus="many"), "of b"), (Namespace(corpus="many"), None), (None, None)]


@pytest.mark.parametrize("owner", [False, True])
def test_an_operator_forgets_what_others_share_whether_it_shares_it_or_not(tmp_path, owner):
    path, keys = tmp_path / "keys.json", {}
    with changing(path, create=True) as content:
        for name in ("acme", "globex", "ops"):
            keys[name], entry = new_key()
            content.tenants[name] = TenantEntry([entry], operator=name == "ops")
        content.shared_corpora["handbook"] = ["acme", "globex", *["ops"] * owner]

    with serving(keys=path) as service:

        def ask(tenant, method, path, given=None):
            return service.ask(method, path, given, Authorization=f"Bearer {keys[tenant]}")

        given = {"blocks": [A], "namespace": {"corpus": "handbook"}}
        for tenant in ("acme", "ops"):
            assert ask(tenant, "POST", "/v1/align", given).status == 200
        assert ask("acme", "DELETE", "/v1/namespaces/::handbook").status == 403
        assert ask("globex", "POST", "/v1/predict", given).json()["predicted_cached_tokens"] == 100
        assert ask("ops", "DELETE", "/v1/namespaces/::handbook").json()["forgotten"] == (1 if owner else 2)
        for tenant in ("globex", "ops"):
            assert ask(tenant, "POST", "/v1/predict", given).json()["predicted_cached_tokens"] == 0
        assert ask("ops", "DELETE", "/v1/namespaces/::handbook").json()["forgotten"] == 0


def test_a_head_that_is_named_is_the_only_one():
    ledgers = Ledgers(10, 100, lambda: 0.0)
    for head in ("", "a", "b"):
        ledgers.turn(Namespace(corpus="c", head=head), TurnIn("t"), (), "ticket")
    assert ledgers.forget(Namespace(corpus="c", head="a")) == 1
    assert ledgers.forget(Namespace(corpus="c", head="a")) == 0
    assert ledgers.forget(Namespace(corpus="c"), "other") == 0
    assert ledgers.forget(Namespace(corpus="c")) == 2
