"""What a tenant has on its way at a time is bounded, and takes nothing from others."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key
from contextpilot_rag.service.loads import Loads
from contextpilot_rag.service.problems import TooMany
from contextpilot_rag.service.settings import ServiceSettings
from tests.until import until

from .harness import serving

A = {"blocks": [{"id": "a", "tokens": 100}]}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.integers(0, 40), st.booleans()), max_size=60))
def test_it_answers_as_a_list_of_all_that_is_on_its_way_does(steps):
    loads = Loads(ServiceSettings(max_body=5, max_plan_body=30))
    held = []
    for tenant, long, size, ends in steps:
        mine = [one for one in held if one[:2] == (tenant, long)]
        if ends and mine:
            held.remove(mine[0])
            loads.give_back(tenant, mine[0][2], long=long)
            continue
        try:
            loads.take(tenant, size, long=long)
        except TooMany:
            assert sum(one[2] for one in mine) + size > (60 if long else 80)
        else:
            assert sum(one[2] for one in mine) + size <= (60 if long else 80)
            held.append((tenant, long, size))
    for tenant, long, size in held:
        loads.give_back(tenant, size, long=long)
    assert len(loads) == 0


def begun(port, key, head):
    """A request whose body does not come."""
    connection = socket.create_connection(("127.0.0.1", port), 30)
    fixed = f"POST /v1/predict HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{fixed}{head}\r\n\r\n".encode())
    return connection


def test_bodies_on_their_way_are_bounded_for_each_tenant(tmp_path):
    path = tmp_path / "keys.json"
    keys = {}
    for name in ("acme", "globex"):
        keys[name], entry = new_key()
        with changing(path, create=True) as content:
            content.tenants[name] = TenantEntry([entry])

    def ask(name):
        return served.ask("POST", "/v1/predict", A, keys[name]).status

    with serving(keys=path, max_body=1_000) as served, ExitStack() as ends:
        heads = ["Content-Length: 1000", "Transfer-Encoding: chunked"] * 8  # one that says nothing may be as long
        for head in heads:
            ends.enter_context(begun(served.port, keys["acme"], head))
        until(lambda: ask("acme") == 429)
        assert ask("globex") == 200
        assert served.ask("GET", "/v1/stats", key=keys["acme"]).status == 200  # what has no body weighs nothing
        assert served.ask("POST", "/v1/plan", {"requests": [A]}, keys["acme"]).status == 202
        ends.close()
        until(lambda: ask("acme") == 200)
        until(lambda: len(served.hub.loads) == 0)
        for body in (b"{", b"[]", b"x" * 2_000):  # refusals give back, too
            assert served.ask("POST", "/v1/predict", body, keys["acme"]).status in {400, 413, 422}
        assert len(served.hub.loads) == 0
