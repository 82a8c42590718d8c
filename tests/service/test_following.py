"""A service that follows engines: what happens in their caches happens to all tenants' trees, and to nobody's else."""

from __future__ import annotations

import contextlib
import logging

import pytest

from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.testing import FakeEngine
from contextpilot_rag.types import Namespace
from tests.engines.hurrying import hurry
from tests.remote.service import any_tenant
from tests.service.followed import BLOCKS, ask, client, in_step, line, settled, watch_of
from tests.service.harness import process, serving
from tests.until import until


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    hurry(monkeypatch)


@pytest.fixture
def fake():
    with FakeEngine(events=True, block_size=16, capacity_blocks=60) as engine:
        yield engine


def tree_blocks(service, tenant=""):
    return service.hub.service.tenant(tenant).stats().tree_blocks


def restart(fake):
    """The same engine at the same addresses, with nothing in its cache."""
    ports = [int(url.rpartition(":")[2].partition("/")[0]) for url in (fake.base_url, fake.events_url, fake.replay_url)]
    fake.crash()
    return lambda: fake.start(port=ports[0], events_port=ports[1], replay_port=ports[2])


def test_evictions_move_the_tree_of_all_who_share_it(fake):
    with serving(engines=line(fake)) as service, client(service, fake) as one, client(service, fake) as other:
        in_step(service)
        ask(one, fake, "AB")
        settled(service, one)
        prompt, cached = ask(other, fake, "BA")
        assert prompt.changed
        assert prompt.cached_blocks == 2
        assert cached > 0
        for names in ("CDE", "FGH", "DEC"):
            ask(one, fake, names)
        settled(service, one, other)
        assert watch_of(service).figures().pruned > 0
        again = other.align([(name, BLOCKS[name]) for name in "AB"], "What is it?")
        assert again.cached_blocks == 0, "the others have evicted it, and the service knows"
        assert one.failures == other.failures == 0
        assert watch_of(service).figures().mirror.mismatched == 0


def test_a_tree_is_what_the_engine_has_over_many_requests(fake):
    """With all prompts told of, every path that is believed cached is, and is found again."""
    with serving(engines=line(fake)) as service, client(service, fake) as pilot:
        in_step(service)
        for number in range(24):
            names = ["ABCDEFGH"[(number * step) % 8] for step in (1, 3, 5)][: 1 + number % 3]
            prompt, cached = ask(pilot, fake, list(dict.fromkeys(names)), f"Question {number}?")
            assert prompt.predicted_cached_tokens == 0 or cached > 0, "believed cached, and not"
            settled(service, pilot)
        assert watch_of(service).figures().mirror.matched > 20


@pytest.mark.parametrize("covering", [True, False])
def test_a_cleared_cache_clears_all_trees(fake, covering):
    with any_tenant(engines=line(fake)) as service:
        in_step(service)
        with contextlib.ExitStack() as stack:
            pilots = [
                stack.enter_context(client(service, *([fake] if covering else []), key=key))
                for key in ("acme", "globex")
            ]
            for pilot in pilots:
                ask(pilot, fake, "AB")
            settled(service, *(pilots if covering else []))
            assert (tree_blocks(service, "acme"), tree_blocks(service, "globex")) == (2, 2)
            fake.reset()
            until(lambda: tree_blocks(service, "acme") == tree_blocks(service, "globex") == 0)
            assert watch_of(service).figures().emptied == 1
            ask(pilots[0], fake, "AB")
            settled(service, *(pilots if covering else []))
            assert (tree_blocks(service, "acme"), tree_blocks(service, "globex")) == (2, 0)


@pytest.mark.parametrize("covering", [True, False])
def test_a_restarted_engine_is_empty_and_is_learnt_again(covering):
    with contextlib.ExitStack() as stack:
        fake = stack.enter_context(FakeEngine(events=True, block_size=16, capacity_blocks=200))
        service = stack.enter_context(serving(engines=line(fake)))
        pilot = stack.enter_context(client(service, *([fake] if covering else [])))
        in_step(service)
        ask(pilot, fake, "AB")
        settled(service, *([pilot] if covering else []))
        assert tree_blocks(service) == 2
        start = restart(fake)
        until(lambda: not watch_of(service).figures().engines[0].alive)
        until(lambda: tree_blocks(service) == 0)
        start()
        until(lambda: watch_of(service).figures().engines[0].alive)
        in_step(service)
        prompt, cached = ask(pilot, fake, "BA")
        assert (prompt.changed, cached) == (False, 0)


def test_one_engine_of_two_keeps_what_it_has():
    with contextlib.ExitStack() as stack:
        first, second = (
            stack.enter_context(FakeEngine(events=True, block_size=16, capacity_blocks=200)) for _ in range(2)
        )
        service = stack.enter_context(serving(engines=f"{line(first, 'one')}, {line(second, 'two')}"))
        pilot = stack.enter_context(client(service, first))
        in_step(service)
        ask(pilot, first, "AB")
        ask(pilot, second, "CD")
        settled(service, pilot)
        assert tree_blocks(service) == 4
        first.reset()
        until(lambda: tree_blocks(service) == 2)  # known to have been there only
        assert watch_of(service).figures().emptied == 0
        second.reset()
        until(lambda: tree_blocks(service) == 0)
        assert watch_of(service).figures().emptied == 1


def test_tenants_with_salts_do_not_credit_each_other(fake):
    """The same texts, and so the same tokens; the engine keeps them apart by their salts, and so does the index."""
    with any_tenant(engines=line(fake)) as service:
        in_step(service)
        with client(service, fake, key="acme") as acme, client(service, fake, key="globex") as globex:
            ask(acme, fake, "AB")
            settled(service, acme)
            unsent = globex.align([(name, BLOCKS[name]) for name in "AB"], "What is it?")
            assert unsent.cached_blocks == 0
            globex.engines.answered(unsent, unsent.messages("Answer."), unsent.salt, None)  # which is a lie
            settled(service, acme, globex)
            mirror = watch_of(service).residency.mirror
            blocks = [unsent.request.blocks[rank] for rank in unsent.order]
            assert (mirror.expected(("tenant", "acme", Namespace()), blocks) or 0) > 0
            assert mirror.expected(("tenant", "globex", Namespace()), blocks) == 0
            _, cached = ask(globex, fake, "AB")
            assert cached == 0
            settled(service, acme, globex)
            assert (mirror.expected(("tenant", "globex", Namespace()), blocks) or 0) > 0


def test_sizes_are_read_from_engines_and_what_is_set_wins(fake):
    with serving(engines=line(fake)) as service, client(service) as pilot:
        before = service.hub.service.pool("tenant", "")
        in_step(service)
        with serving(engines=line(fake), capacity_tokens=77_000) as other:
            in_step(other)
            until(lambda: other.hub.service.pool("corpus", "x").index._limits.terms.kv_block_tokens == 16)
            assert other.hub.service.pool("corpus", "y").index._limits.terms.capacity_tokens == 77_000
        until(lambda: before.index._limits.terms.capacity_tokens == 2 * 60 * 16)  # with room for what is not told
        made_later = service.hub.service.pool("corpus", "z").index._limits.terms
        assert (made_later.capacity_tokens, made_later.kv_block_tokens) == (2 * 60 * 16, 16)
        pilot.align([("A", BLOCKS["A"])], "?")


def test_without_events_there_are_sizes_health_and_reports():
    with (
        FakeEngine(block_size=16, capacity_blocks=60) as fake,
        serving(engines=f"{fake.base_url} name=fake") as service,
    ):
        with client(service, fake) as pilot:
            until(lambda: service.hub.service.pool("tenant", "").index._limits.terms.capacity_tokens == 60 * 16)
            ask(pilot, fake, "AB")
            until(lambda: watch_of(service).figures().engines[0].level == "usage")
            assert pilot.engines.drained()
            assert watch_of(service).figures().mirror.passages == 0, "nobody tells of KV blocks, so none are kept"
        fake.crash()
        until(lambda: tree_blocks(service) == 0)


def test_what_somebody_had_forgotten_is_not_brought_back(fake):
    with serving(engines=line(fake)) as service, client(service, fake) as pilot:
        in_step(service)
        ask(pilot, fake, "AB")
        settled(service, pilot)
        for _ in range(3):
            assert service.ask("DELETE", "/v1/namespaces").status == 200
        settled(service, pilot)
        assert tree_blocks(service) == 0
        assert watch_of(service).figures().mirror.passages == 0
        assert not watch_of(service)._forgetting
        ask(pilot, fake, "AB", "Another question?")
        settled(service, pilot)
        assert tree_blocks(service) == 2
        assert watch_of(service).figures().mirror.passages > 0


def test_trouble_is_said_aloud_and_shown(fake, caplog):
    caplog.set_level(logging.WARNING)
    wrong = f"{fake.base_url} name=fake events=tcp://127.0.0.1:1"
    with serving(engines=wrong) as service:
        until(lambda: any("engine fake" in record.getMessage() for record in caplog.records))
        (engine,) = service.ask("GET", "/v1/engines").json()["followed"]
        assert engine["level"] != "events"
        assert "127.0.0.1:1" in engine["why"]
        assert "127.0.0.1:1" in service.ask("GET", "/").body.decode()
        metrics = service.ask("GET", "/metrics").body.decode()
        assert 'contextpilot_engine_level{engine="fake",level="events"} 0.0' in metrics


def test_what_is_shown_of_followed_engines(fake):
    with serving(engines=line(fake)) as service, client(service, fake) as pilot:
        in_step(service)
        ask(pilot, fake, "AB")
        settled(service, pilot)
        (engine,) = service.ask("GET", "/v1/engines").json()["followed"]
        assert (engine["name"], engine["alive"], engine["level"], engine["kind"]) == ("fake", True, "events", "vllm")
        assert (engine["capacity_tokens"], engine["block_size"], engine["events"]) == (960, 16, 1)
        metrics = service.ask("GET", "/metrics").body.decode()
        for said in (
            'contextpilot_engine_up{engine="fake"} 1.0',
            'contextpilot_engine_level{engine="fake",level="events"} 1.0',
            'contextpilot_engine_level{engine="fake",level="model"} 0.0',
            'contextpilot_engine_events_total{engine="fake"} 1.0',
            "contextpilot_covered_matched_total 1.0",
            "contextpilot_mirror_passages 3.0",
        ):
            assert said in metrics, said
        page = service.ask("GET", "/").body.decode()
        assert "Followed engines" in page
        assert "cache events" in page
    with serving() as service:
        assert "Followed engines" not in service.ask("GET", "/").body.decode()
        assert "followed" not in service.ask("GET", "/v1/engines").json()
        assert "engine_up" not in service.ask("GET", "/metrics").body.decode()


def test_only_operators_see_where_engines_are_and_what_ails_them(fake):
    with any_tenant(engines=line(fake), operator_metrics=False) as service:
        in_step(service)
        (engine,) = service.ask("GET", "/v1/engines", key="acme").json()["followed"]
        assert set(engine) == {"name", "alive", "level", "kind", "capacity_tokens", "block_size"}
        metrics = service.ask("GET", "/metrics", key="acme").body.decode()
        assert 'contextpilot_engine_up{engine="0"} 1.0' in metrics


def test_a_service_process_follows_and_ends_in_time(fake, tmp_path):
    with process(tmp_path, "--engine", line(fake), "--state", str(tmp_path / "state")) as service:
        until(lambda: service.ask("GET", "/v1/engines").json()["followed"][0]["level"] == "events")
        until(lambda: "block_size" in service.ask("GET", "/v1/engines").json()["followed"][0])
        with client(service, fake) as pilot:
            ask(pilot, fake, "AB")
            assert pilot.engines.drained()
            until(lambda: "covered_matched_total 1.0" in service.ask("GET", "/metrics").body.decode())
            fake.reset()
            until(lambda: pilot.stats().tree_blocks == 0)
            ask(pilot, fake, "AB")
        assert service.stop() == 0
        assert "Traceback" not in service.log.read_text()
    # What was saved is believed after the start; the engine's events correct what clients tell of from then on.
    arguments = ("--engine", line(fake), "--state", str(tmp_path / "state"))
    with process(tmp_path, *arguments) as service, client(service, fake) as pilot:
        until(lambda: service.ask("GET", "/v1/engines").json()["followed"][0]["level"] == "events")
        assert pilot.stats().tree_blocks == 2, "the engine was cleared once, but that is long ago"
        fake.reset()
        until(lambda: pilot.stats().tree_blocks == 0)


def test_an_engine_that_began_anew_while_nobody_listened_has_nothing(tmp_path):
    with contextlib.ExitStack() as stack:
        fake = stack.enter_context(FakeEngine(events=True, block_size=16))
        state = str(tmp_path / "state")
        with serving(engines=line(fake), state=state) as service, client(service) as pilot:
            in_step(service)
            ask(pilot, fake, "AB")
            settled(service)
        start = restart(fake)
        start()
        with serving(engines=line(fake), state=state) as service:
            in_step(service)
            until(lambda: tree_blocks(service) == 0)
            assert watch_of(service).figures().emptied == 1


def test_pyzmq_has_to_be_there_for_events_only(monkeypatch):
    import sys

    from contextpilot_rag.errors import MissingPackage

    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(MissingPackage, match="events"), serving(engines="http://127.0.0.1:9 events=tcp://127.0.0.1:9"):
        pass
    with serving(engines="http://127.0.0.1:9") as service:
        assert service.ask("GET", "/readyz").status == 200


def test_settings_are_checked():
    assert ServiceSettings(engines="").engines == ""
    with pytest.raises(Exception, match="--engine: "):
        ServiceSettings(engines="nowhere")
