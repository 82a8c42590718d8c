"""One answer to each question: what comes besides it is nobody's, and no salt is another namespace's."""

from __future__ import annotations

import asyncio
from urllib.parse import unquote

import pytest

from contextpilot_rag import BlockRef, ContextPilot, Namespace, RemoteIndex, Request
from contextpilot_rag.errors import IndexFailed
from tests.remote.stub import Asked, always, honest, reply, stub

REQUEST = Request((BlockRef(b"a" * 16, 100), BlockRef(b"b" * 16, 50)))
BOTH = pytest.mark.parametrize("awaited", [False, True], ids=["blocking", "awaited"])
ODD_SALTS = ["", "a\nb€", "a" * 129, "salt\n", "two words"]


def ask(index: RemoteIndex, awaited: bool) -> tuple[int, ...]:
    return (asyncio.run(index.aalign(REQUEST)) if awaited else index.align(REQUEST)).order


def named(asked: Asked) -> str:
    return unquote(unquote(asked.head.split(" ")[1].rpartition("/")[2]))


def shown(name: str, salt: object) -> bytes:
    return reply({"name": name, "namespace": {}, "cache_salt": salt})


def test_an_answer_that_comes_twice_is_nobody_elses():
    def answer(sock, asked: Asked) -> bool:
        name = named(asked)
        sock.sendall(shown(name, f"salt-of-{name[0]}") * (1 + (len(service.asked) == 1)))
        return True

    with stub(answer) as service, ContextPilot(service.address, api_key="k", index_timeout=20) as pilot:
        assert [pilot.extra_body(name)["cache_salt"] for name in "ABC"] == ["salt-of-A", "salt-of-B", "salt-of-C"]
        assert [asked.connection for asked in service.asked] == [1, 2, 2]
        assert pilot.failures == 0


@BOTH
def test_what_comes_besides_an_answer_ends_the_connection(awaited):
    def answer(sock, asked: Asked) -> bool:
        sock.sendall(reply(honest(asked)) * (1 + (len(service.asked) == 1)))
        return True

    with stub(answer) as service, RemoteIndex(service.address, timeout=20) as index:
        assert [ask(index, awaited) for _ in range(3)] == [(0, 1)] * 3
        assert [asked.connection for asked in service.asked] == [1, 2, 2]


@BOTH
def test_an_answer_that_cannot_be_used_ends_the_connection(awaited):
    def answer(sock, asked: Asked) -> bool:
        given = {"ticket": "A" * 22} if len(service.asked) == 1 else {}
        sock.sendall(reply(honest(asked, **given)))
        return True

    with stub(answer) as service, RemoteIndex(service.address, timeout=20) as index:
        with pytest.raises(IndexFailed, match="another request"):
            ask(index, awaited)
        assert ask(index, awaited) == (0, 1)
        assert [asked.connection for asked in service.asked] == [1, 2]


def test_a_salt_of_another_namespace_is_not_taken():
    with (
        stub(always(shown("other::", "salt"))) as service,
        RemoteIndex(service.address, api_key="k", timeout=20) as index,
        pytest.raises(IndexFailed, match="another request"),
    ):
        index.cache_salt(Namespace("mine"), None, ask=True)


@BOTH
@pytest.mark.parametrize("salt", ODD_SALTS)
def test_salts_that_no_service_makes_are_not_taken(salt, awaited):
    def answer(sock, asked: Asked) -> bool:
        sock.sendall(reply(honest(asked, cache_salt=salt)))
        return True

    with stub(answer) as service, RemoteIndex(service.address, api_key="k", timeout=20) as index:
        before = index.cache_salt(Namespace(), None)
        with pytest.raises(IndexFailed, match="cache salt"):
            ask(index, awaited)
        assert index.cache_salt(Namespace(), None) == before


@pytest.mark.parametrize("salt", ODD_SALTS)
def test_nor_are_they_where_one_is_asked_for(salt):
    with (
        stub(always(shown("::", salt))) as service,
        RemoteIndex(service.address, timeout=20) as index,
        pytest.raises(IndexFailed, match="cache salt"),
    ):
        index.cache_salt(Namespace(), None, ask=True)


@BOTH
def test_with_a_key_there_is_always_a_salt(awaited):
    def answer(sock, asked: Asked) -> bool:
        sock.sendall(reply(honest(asked)) if asked.body else shown(named(asked), None))
        return True

    with stub(answer) as service, RemoteIndex(service.address, api_key="k", timeout=20) as index:
        before = index.cache_salt(Namespace(), "otherwise")
        assert before != "otherwise"
        ask(index, awaited)
        assert index.cache_salt(Namespace(), "otherwise") == before
        assert index.cache_salt(Namespace("new"), "otherwise", ask=True) not in {None, "otherwise", before}
    with stub(answer) as service, RemoteIndex(service.address, timeout=20) as index:
        ask(index, awaited)
        assert index.cache_salt(Namespace(), "otherwise") is None  # the default namespace of a service without keys
