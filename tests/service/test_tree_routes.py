from __future__ import annotations

import pytest

from contextpilot_rag.errors import StateError
from contextpilot_rag.remote.wire_tree import decoded_tree, encoded_tree
from tests.service.harness import serving


def test_a_tree_can_be_asked_for():
    with serving() as served:
        path = "/v1/namespaces/acme:m/tree"
        assert served.ask("GET", path).status == 404
        for number in range(300):
            body = {
                "blocks": [{"id": f"{number}-{place}", "tokens": 10} for place in range(10)],
                "namespace": {"tenant": "acme", "model": "m"},
            }
            assert served.ask("POST", "/v1/align", body).status == 200
        body["namespace"]["head"] = "h"
        served.ask("POST", "/v1/align", body)
        reply = served.ask("GET", path)
        assert (reply.status, reply.headers["content-type"]) == (200, "application/vnd.msgpack")
        assert decoded_tree(reply.body).blocks == 3_000
        assert decoded_tree(served.ask("GET", f"{path}?head=h").body).blocks == 10
        some = decoded_tree(served.ask("GET", f"{path}?blocks=500").body)
        assert 500 <= some.blocks <= 1_500
        assert [part[0] for part in some.paths() if part[0] == "299-0"] == ["299-0"]
        assert served.ask("GET", f"{path}?blocks=0").status == 422


def test_no_tree_is_an_error():
    for answer in (b"", b"{}", encoded_tree([b"\xc0"]), encoded_tree([b"\x93"])):
        with pytest.raises(StateError):
            decoded_tree(answer)
