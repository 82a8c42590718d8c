"""What clients tell of where prompts stand: checked, bounded, each ticket's once; garbage moves nobody's tree."""

from __future__ import annotations

import base64
import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.engines.chain import chain, content
from contextpilot_rag.engines.covering import Covering
from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.engines.kv import Removed, Stored
from contextpilot_rag.remote import wire
from contextpilot_rag.service import covers as covers_module
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.covers import Cover, Covers, check
from contextpilot_rag.service.handover import Forgetting
from contextpilot_rag.service.problems import Unusable
from contextpilot_rag.service.residency import Residency
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.testing import FakeEngine
from contextpilot_rag.types import BlockRef, Namespace
from tests.remote.service import any_tenant
from tests.resident import resident_tokens
from tests.service.followed import in_step, line, settled, told, watch_of
from tests.service.harness import serving
from tests.service.test_residency import Taken

SECONDS = 20.0
SPACE = ("tenant", "", Namespace())


def covering(tokens, ends, salt=None, block_size=4):
    whole = len(tokens) // block_size * block_size
    contents = tuple(content(tokens[at : at + block_size]) for at in range(0, whole, block_size))
    return Covering(chain(tokens, block_size, salt), contents, tuple(ends), len(tokens), block_size)


def cover_in(found, ticket="t" * 22, **changed):
    given = {
        "ticket": ticket,
        "keys": b"".join(found.keys),
        "contents": b"".join(found.contents),
        "ends": list(found.ends),
        "tokens": found.tokens,
        "block_size": found.block_size,
    }
    return wire.CoverIn(**{**given, **changed})


FOUND = covering(range(18), (2, 8, 16))
BLOCKS = (BlockRef("a", 6), BlockRef("b", 8))


def test_what_is_right_passes():
    check(cover_in(FOUND, cached_tokens=18), 2)
    check(wire.CoverIn("t" * 22, b"", b"", [0], 3, 4), 0)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"keys": b"x"}, "keys: not 16 bytes for each of the prompt's 4"),
        ({"keys": bytes(80)}, "keys: not 16 bytes"),
        ({"contents": bytes(48)}, "contents: not 16 bytes"),
        ({"tokens": 20}, "keys: not 16 bytes for each of the prompt's 5"),
        ({"block_size": 1}, "keys: not 16 bytes for each of the prompt's 18"),
        ({"ends": [2, 8]}, "ends: 2 of them"),
        ({"ends": []}, "ends: 0 of them"),
        ({"ends": [8, 2, 16]}, "ends: one is before"),
        ({"ends": [2, 8, 19]}, "ends: one is behind"),
        ({"cached_tokens": 19}, "cached_tokens: more"),
    ],
)
def test_what_cannot_be_is_refused(changed, said):
    with pytest.raises(Unusable, match=said):
        check(cover_in(FOUND, **changed), 2)


def align(service, ids, key=None, **more):
    body = {"blocks": [{"id": name, "tokens": 6} for name in ids], **more}
    return service.ask("POST", "/v1/align", body, key).json()


@pytest.fixture(scope="module")
def fake():
    with FakeEngine(events=True, block_size=4) as engine:
        yield engine


@pytest.fixture(scope="module")
def service(fake):
    with any_tenant(engines=line(fake)) as running:
        in_step(running)
        yield running


def test_each_ticket_is_covered_once_and_by_its_tenant(service):
    ticket = align(service, "ab", "acme")["ticket"]
    body = told(ticket, FOUND)
    assert service.ask("POST", "/v1/cover", body, "globex").status == 404
    assert service.ask("POST", "/v1/cover", {**body, "ends": [1, 2]}, "acme").status == 422
    answers = [service.ask("POST", "/v1/cover", body, "acme").json() for _ in range(2)]
    assert answers == [{"taken": True}, {"taken": False}]
    assert service.ask("POST", "/v1/cover", told("x" * 22, FOUND), "acme").status == 404


def test_a_conversations_later_turns_are_nobody_elses_prefix(service):
    first = align(service, "ab", "talker", conversation={"id": "c"})
    turn = {"id": "c", "after": first["turn"], "next_label": 3}
    later = align(service, "cd", "talker", conversation=turn)
    assert later["rule"] == "conversation"
    assert service.ask("POST", "/v1/cover", told(later["ticket"], FOUND), "talker").json() == {"taken": False}


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"keys": "no base64!"}, 422),
        ({"keys": 7}, 422),
        ({"keys": base64.b64encode(bytes(16 * 65_537)).decode()}, 422),
        ({"contents": ""}, 422),
        ({"ends": [-1, 8, 16]}, 422),
        ({"ends": "x"}, 422),
        ({"tokens": -1}, 422),
        ({"tokens": 10**12}, 422),
        ({"block_size": 0}, 422),
        ({"cached_tokens": -5}, 422),
        ({"more": 1}, 422),
        ({"ticket": "short"}, 422),
    ],
)
def test_garbage_over_http_is_a_problem(service, changed, status):
    body = told(align(service, "ab", "garbler")["ticket"], FOUND)
    reply = service.ask("POST", "/v1/cover", {**body, **changed}, "garbler")
    assert (reply.status, reply.headers["content-type"]) == (status, "application/problem+json")


def test_garbage_that_looks_right_moves_nobody_elses_tree(service):
    """Digests of anything, of the same over and over, and of another tenant's tokens without that one's salt."""
    numbers = random.Random(7)
    honest = align(service, "ab", "honest")
    salted = covering(range(18), (2, 8, 16), honest["cache_salt"])
    assert service.ask("POST", "/v1/cover", told(honest["ticket"], salted, 18), "honest").json() == {"taken": True}
    before = service.hub.service.tenant("honest").stats().tree_blocks
    settled(service)
    for number in range(40):
        ticket = align(service, "ab", "liar")["ticket"]
        keys = [numbers.randbytes(16) for _ in range(4)]
        if number % 3 == 0:
            keys = [keys[0]] * 4
        if number % 3 == 1:
            keys = list(FOUND.keys)
        body = {
            **told(ticket, FOUND),
            "keys": base64.b64encode(b"".join(keys)).decode(),
            "cached_tokens": numbers.choice([None, 0, 18]),
        }
        assert service.ask("POST", "/v1/cover", body, "liar").status == 200
    settled(service)
    assert service.hub.service.tenant("honest").stats().tree_blocks == before == 2
    mirror = watch_of(service).residency.mirror
    blocks = [BlockRef(name, 6) for name in "ab"]
    assert mirror.expected(("tenant", "honest", Namespace()), blocks) == 16
    assert watch_of(service).figures().covers_dropped >= 13, "digests that repeat are let go"
    assert honest["order"] == [0, 1]


def test_where_nobody_listens_it_is_of_no_use():
    with serving() as plain, serving(engines="http://127.0.0.1:9") as deaf:
        for service in (plain, deaf):
            ticket = align(service, "ab")["ticket"]
            assert service.ask("POST", "/v1/cover", told(ticket, FOUND)).json() == {"taken": False}


def residency():
    engine = Engine("http://e:1", name="e", events="tcp://e:2")
    return Residency([engine], Taken(), lambda: 0.0)


def cover(number, size=1, space=SPACE):
    tokens = [number * 1_000 + at for at in range(4 * size)]
    return Cover(space, None, (BlockRef(number, 4 * size),), cover_in(covering(tokens, (0, 4 * size))), "e")


def test_what_waits_is_bounded_and_what_is_forgotten_waits_in_its_place(monkeypatch):
    monkeypatch.setattr(covers_module, "MOST_BYTES", 20_000)
    monkeypatch.setattr(covers_module, "MOST_FORGETTING", 5)
    made = residency()
    covers = Covers(made)
    taken = [covers.put(cover(number)) for number in range(100)]
    assert taken == sorted(taken, reverse=True)
    assert 10 < sum(taken) < 20
    assert covers.dropped == taken.count(False)
    asked = [covers.forget(Forgetting("tenant", "", Namespace(corpus=str(number)))) for number in range(8)]
    assert [one is not None for one in asked] == [True] * 6 + [False] * 2
    assert asked[5] == Forgetting("tenant", "", None), "of very many, all"
    assert covers.forget(Forgetting("tenant", "other", None)) == Forgetting("tenant", "other", None)
    covers.start()
    assert covers.drained(SECONDS)
    assert covers.put(cover(200))
    assert covers.drained(SECONDS)
    assert made.mirror.spaces() == [SPACE], "what came after the forgetting"
    assert made.counts().passages == 2
    covers.stop()
    assert not covers.put(cover(300))
    assert covers.forget(Forgetting("tenant", "", None)) is None


def test_what_breaks_is_logged_and_the_next_one_is_taken(caplog):
    made = residency()
    covers = Covers(made)
    broken, whole = cover(1), cover(2)
    mirror_cover = made.cover_space

    def sometimes(space, salt, blocks, *rest):
        if blocks == broken.blocks:
            raise RuntimeError("on purpose")
        mirror_cover(space, salt, blocks, *rest)

    made.cover_space = sometimes
    covers.start()
    for one in (broken, whole):
        covers.put(one)
    assert covers.drained(SECONDS)
    covers.stop()
    assert covers.taken == 1
    assert [record.getMessage() for record in caplog.records if "contextpilot" in record.name] == [
        "what a client told of a prompt's place could not be taken in"
    ]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=20))
def test_garbage_never_breaks_the_mirror(steps):
    """Whatever digests are told, events go on to be followed as they should."""
    made = residency()
    tokens = list(range(16))
    right = covering(tokens, (2, 8, 16))
    for number, (kind, stored) in enumerate(steps):
        keys = [right.keys, right.keys[::-1], right.contents, (right.keys[0],) * 4, right.keys, right.keys][kind]
        ends = [(2, 8, 16), (0, 0, 0), (16, 16, 16), (2, 8, 16), (8, 8, 8), (2, 8, 16)][kind]
        garbage = Covering(tuple(keys), right.contents, ends, 16, 4)
        blocks = [BlockRef(number if kind != 5 else "a", 6), BlockRef("b", 8)]
        if len(set(keys)) == len(keys):
            made.cover_space(SPACE, None, blocks, garbage, "e", 16 if kind == 1 else None)
        if stored:
            made.events("e", 0, [Stored((1, 2, 3, 4), None, tuple(tokens), 4)])
        else:
            made.events("e", 0, [Removed((1, 2, 3, 4))])
    made.cover_space(("tenant", "x", Namespace()), None, list(BLOCKS), right, "e", None)
    for _ in range(len(steps) + 1):
        made.events("e", 0, [Removed((1, 2, 3, 4))])
    made.events("e", 0, [Stored((1, 2, 3, 4), None, tuple(tokens), 4)])
    assert resident_tokens(made.mirror, right.keys, 4) == 16


def test_a_ticket_that_waits_for_room_can_be_told_of_again():
    service = Service(ServiceSettings())
    tenant = service.tenant("")
    blocks = [wire.BlockIn(id=name, tokens=6) for name in "ab"]
    given = cover_in(FOUND, tenant.align(wire.AlignIn(blocks)).ticket)
    answers = [tenant.cover(given, put) for put in (lambda _: False, lambda _: True, lambda _: True)]
    assert answers == [wire.CoverOut(taken=False), wire.CoverOut(taken=True), wire.CoverOut(taken=False)]


def test_many_clients_at_once_lose_nothing():
    made = residency()
    covers = Covers(made)
    covers.start()
    threads = [
        threading.Thread(target=lambda first=first: [covers.put(cover(first + n)) for n in range(100)])
        for first in range(0, 400, 100)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert covers.drained(SECONDS)
    covers.stop()
    assert covers.taken == 400
    assert made.counts().passages == 401
