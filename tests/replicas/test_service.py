"""Services that share a log server: what one of them is told the others know, and none of them needs it."""

from __future__ import annotations

import logging
from contextlib import ExitStack

import pytest

from contextpilot_rag.remote.wire import TurnIn
from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key
from contextpilot_rag.types import Namespace
from tests.service.harness import serving
from tests.until import until

from .link import Link

SECRET = "a secret of all replicas"


def blocks(names):
    return [{"id": name, "tokens": 100} for name in names]


def predicted(service, names, **more):
    return service.ask("POST", "/v1/predict", {"blocks": blocks(names)}, **more).json()["predicted_cached_tokens"]


def aligned(service, names, conversation=None, ticket=None, **more):
    body = {"blocks": blocks(names)}
    body |= {} if conversation is None else {"conversation": conversation}
    body |= {} if ticket is None else {"ticket": ticket}
    reply = service.ask("POST", "/v1/align", body, **more)
    assert reply.status == 200, reply.body
    return reply.json()


def joined(service):
    return service.ask("GET", "/healthz").json()["replica"] == "joined"


def knows(service, talk, answer):
    """Whether a turn that follows an answer would be given its blocks only once."""
    return service.hub.service.tenant("").ledgers.knows(Namespace(), TurnIn(talk, answer, 1))


@pytest.fixture
def replica(log_server):
    """Makes services that share the log server; all end with the test."""
    with ExitStack() as stack:
        yield lambda url=log_server.url, **given: stack.enter_context(
            serving(**{"replicate": url, "salt_secret": SECRET, **given})
        )


def test_what_one_aligned_the_others_predict_and_also_one_that_joins_late(replica):
    first, second = replica(), replica()
    for service, names in ((first, "abc"), (second, "xyz")):
        aligned(service, names)
    late = replica()
    for service in (first, second, late):
        for names in ("bca", "zyx"):
            until(lambda service=service, names=names: predicted(service, names) == 300)
        assert joined(service)


def test_a_conversation_changes_replicas_with_each_turn_and_nothing_is_given_twice(replica):
    services = [replica(), replica(), replica()]
    after, label, has = None, 1, {}
    for turn in range(9):
        if after is not None:
            until(lambda turn=turn, after=after: knows(services[turn % 3], "talk", after))
        names = [f"block {number}" for number in range(turn, turn + 3)]
        given = {"id": "talk"} | ({} if after is None else {"after": after, "next_label": label})
        answer = aligned(services[turn % 3], names, given)
        for position, its in zip(answer["order"], answer["labels"], strict=True):
            if str(its) in answer.get("location_hints", {}):
                assert has[its] == names[position]
            else:
                assert its not in has
                has[its] = names[position]
        after, label = answer["turn"], max(has) + 1
    assert len(has) == len(set(has.values())) == 11


def test_usage_is_reported_at_another_replica_at_once_and_counted_once(replica):
    first, second = replica(), replica()
    aligned(first, "z")
    until(lambda: predicted(second, "z"))
    for number in range(20):
        ticket = aligned(first, f"ab{number}")["ticket"]
        told = {"ticket": ticket, "usage": {"prompt_tokens": 300, "cached_tokens": 0}}
        assert second.ask("POST", "/v1/observe", told).json() == {"counted": True}
    until(lambda: first.hub.service.tenant("").tickets.get(ticket).observed)
    assert first.ask("POST", "/v1/observe", told).json() == {"counted": False}
    counted = [service.ask("GET", "/v1/stats").json()["observed"] for service in (first, second)]
    assert counted == [0, 20]


def test_a_request_is_tried_again_at_another_replica(replica):
    first, second = replica(), replica()
    aligned(first, "abc")
    one = aligned(first, "cba", ticket="a-ticket-of-a-client")
    until(lambda: predicted(second, "abc"))
    assert aligned(second, "cba", ticket="a-ticket-of-a-client") == one


def test_what_is_forgotten_at_one_is_forgotten_by_all_and_leaves_the_server(replica, log_server):
    first, second = replica(), replica()
    talk = aligned(first, "abc", {"id": "talk"})
    until(lambda: knows(second, "talk", talk["turn"]))
    assert second.ask("DELETE", "/v1/namespaces?conversations=true").json() == {"forgotten": 1, "conversations": 1}
    until(lambda: not predicted(first, "abc"))
    until(lambda: not knows(first, "talk", talk["turn"]))
    late = replica()
    for service in (first, second, late):
        assert predicted(service, "abc") == 0
        again = aligned(service, "abc", {"id": "talk", "after": talk["turn"], "next_label": 4})
        assert not again.get("location_hints")


@pytest.fixture
def keyed(tmp_path):
    path, keys = tmp_path / "keys.json", {}
    with changing(path, create=True) as content:
        for name in ("acme", "globex", "initech"):
            keys[name], entry = new_key()
            content.tenants[name] = TenantEntry([entry], operator=name == "acme")
        content.shared_corpora["handbook"] = ["acme", "globex"]
    return path, keys


def test_tenants_never_meet_in_the_log_and_corpora_are_shared_by_their_own(replica, keyed):
    path, keys = keyed
    first, second = replica(keys=path), replica(keys=path)
    aligned(first, "abc", key=keys["acme"])
    until(lambda: predicted(second, "abc", key=keys["acme"]) == 300)
    shared = {"blocks": blocks("abc"), "namespace": {"corpus": "handbook"}}
    salts = [service.ask("POST", "/v1/align", shared, keys["acme"]).json()["cache_salt"] for service in (first, second)]
    assert salts[0] == salts[1]

    def known(service, tenant):
        return service.ask("POST", "/v1/predict", shared, keys[tenant]).json()["predicted_cached_tokens"]

    until(lambda: known(second, "globex") == 300)
    for service in (first, second):
        assert predicted(service, "abc", key=keys["globex"]) == 0
        assert predicted(service, "abc", key=keys["initech"]) == 0
        assert known(service, "initech") == 0


def test_a_tenant_that_one_replica_hears_of_later_gets_what_the_log_has_of_it(replica, tmp_path):
    key, entry = new_key()
    paths = [tmp_path / name for name in ("first.json", "second.json")]
    for path in paths:
        with changing(path, create=True) as content:
            content.tenants["acme"] = TenantEntry([entry] if path is paths[0] else [])
            if path is paths[1]:
                other, another = new_key()
                content.tenants["globex"] = TenantEntry([another])
                del content.tenants["acme"]
    first, second = (replica(keys=path) for path in paths)
    aligned(first, "abc", key=key)
    aligned(second, "abc", key=other)
    assert second.ask("POST", "/v1/predict", {"blocks": blocks("abc")}, key).status == 401
    with changing(paths[1]) as content:
        content.tenants["acme"] = TenantEntry([entry])
    second.server.reload()
    until(lambda: second.ask("POST", "/v1/predict", {"blocks": blocks("abc")}, key).status == 200)
    until(lambda: predicted(second, "abc", key=key) == 300)


def test_without_a_log_each_goes_on_alone_and_they_meet_once_there_is_one(replica, log_server, caplog):
    caplog.set_level(logging.INFO, "contextpilot_rag")
    with Link(log_server.port) as link:
        link.cut(refuse=True)
        url = link.url
        first, second = replica(url), replica(url)
        for service, names in ((first, "abc"), (second, "xyz")):
            assert service.ask("GET", "/readyz").json() == {"state": "ready", "replica": "alone"}
            talk = aligned(service, names, {"id": f"talk of {names}"})
            again = aligned(service, names, {"id": f"talk of {names}", "after": talk["turn"], "next_label": 4})
            assert len(again["location_hints"]) == 3
            assert predicted(service, names) == 300
        assert predicted(second, "abc") == 0
        link.heal()
        for service, names in ((first, "xyz"), (second, "abc")):
            until(lambda service=service: joined(service))
            until(lambda service=service, names=names: predicted(service, names) == 300)
        said = [record.getMessage() for record in caplog.records if "going on alone" in record.getMessage()]
        assert len(said) == 2, "once for each replica"


def test_the_log_server_goes_away_and_comes_back_empty(replica, log_server):
    first, second = replica(), replica()
    aligned(first, "abc")
    until(lambda: predicted(second, "abc"))
    log_server.kill()
    until(lambda: not joined(first) and not joined(second))
    aligned(second, "xyz")
    assert predicted(first, "abc") == predicted(second, "abc") == predicted(second, "xyz") == 300
    log_server.start()
    for service in (first, second):
        for names in ("cba", "zyx"):
            until(lambda service=service, names=names: predicted(service, names) == 300)
    late = replica()
    for names in ("cba", "zyx"):
        until(lambda names=names: predicted(late, names) == 300)


def known(service, names):
    given = {"blocks": blocks(names), "namespace": {"corpus": "c"}}
    return service.ask("POST", "/v1/predict", given).json()["predicted_cached_tokens"]


@pytest.fixture
def state(tmp_path):
    """A state folder of a service that had no replicas."""
    with serving(state=tmp_path / "state", salt_secret=SECRET) as alone:
        aligned(alone, "abc")
        alone.ask("POST", "/v1/align", {"blocks": blocks("old"), "namespace": {"corpus": "c"}})
    return tmp_path / "state"


def test_what_a_state_folder_holds_is_shared_by_a_log_that_is_young(replica, state):
    first = replica()
    first.ask("POST", "/v1/align", {"blocks": blocks("new"), "namespace": {"corpus": "c"}})
    until(lambda: first.hub.replicas.status().applied)
    second = replica(state=state)
    assert predicted(second, "abc") == known(second, "new") == 300
    until(lambda: known(first, "old") == known(second, "old") == 300)
    aligned(second, "a")  # a log is begun where something is told
    until(lambda: predicted(first, "abc") == 300)


def test_what_was_forgotten_meanwhile_does_not_come_back_from_a_state_folder(replica, state):
    first = replica()
    first.ask("POST", "/v1/align", {"blocks": blocks("new"), "namespace": {"corpus": "c"}})
    until(lambda: first.hub.replicas.status().applied)
    first.ask("DELETE", "/v1/namespaces/::c")
    until(lambda: first.hub.replicas.status().compacted)
    second = replica(state=state)
    assert (predicted(second, "abc"), known(second, "old"), known(first, "old")) == (300, 0, 0)


def test_a_service_that_ends_has_told_all_it_knew(replica):
    first = replica()
    with serving(replicate=first.hub.settings.replicate, salt_secret=SECRET) as second:
        aligned(second, "abc")
    until(lambda: predicted(first, "abc") == 300)


def test_a_start_says_that_the_log_is_there_and_how_much_of_it_is_of_concern(replica, caplog):
    caplog.set_level(logging.INFO, "contextpilot_rag")
    first = replica()
    aligned(first, "abc")
    first.ask("POST", "/v1/align", {"blocks": blocks("new"), "namespace": {"corpus": "c"}})
    until(lambda: first.hub.replicas.status().pending == 0)
    replica()
    said = [one.getMessage() for one in caplog.records if "the log is there" in one.getMessage()]
    assert [line.rpartition(" ")[2] for line in said] == ["0", "2"]


def test_whoever_has_another_secret_is_not_believed(replica):
    first, stranger = replica(), replica(salt_secret="another")
    aligned(stranger, "abc")
    aligned(first, "xyz")
    until(lambda: stranger.hub.replicas.status().appended and stranger.hub.replicas.status().pending == 0)
    until(lambda: first.hub.replicas.status().rejected.get("signature", 0))
    assert predicted(first, "abc") == predicted(stranger, "xyz") == 0
