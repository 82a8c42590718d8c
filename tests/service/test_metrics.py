"""Metrics: they count what happened, in tokens, under names that nobody can multiply, and tell nothing of tenants."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from contextpilot_rag.remote import wire
from contextpilot_rag.service import exposition
from contextpilot_rag.service.auth import Caller, OpenGate
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.hub import Hub, State
from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key
from contextpilot_rag.service.metrics import ALIGN, Metrics
from contextpilot_rag.service.operation import Call
from contextpilot_rag.service.problems import Forbidden, NotFound, TooMany
from contextpilot_rag.service.rates import Rates
from contextpilot_rag.service.seen_routes import OPERATIONS
from contextpilot_rag.service.settings import ServiceSettings
from tests.service.harness import serving

# What the issue and dashboards ask for.
NAMES = """
    requests prompt_tokens predicted_cached_tokens retrieved_cached_tokens reported_prompt_tokens reported_cached_tokens
    cached_not_reported dedup_tokens_saved blocks_displaced align_seconds plan_duration_seconds plans index_blocks
    index_tokens namespaces conversations tickets tenants http_responses rejected snapshot_age_seconds snapshot_seconds
    snapshot_failures
""".split()


class World:
    """A service without HTTP, and a clock that is turned by hand."""

    def __init__(self, secret="s", **settings):
        self.now = 1_000_000.0
        chosen = ServiceSettings(**settings)
        self.metrics = Metrics(chosen, secret, lambda: self.now)
        self.service = Service(chosen, secret, lambda: self.now, [self.metrics])
        self.hub = Hub(chosen, self.service, OpenGate(), State.READY, metrics=self.metrics)

    def align(self, ids, tenant="", **given):
        blocks = [wire.BlockIn(id=str(name), tokens=10 + name % 7) for name in ids]
        return self.service.tenant(tenant).align(wire.AlignIn(blocks, **given))

    def observe(self, answer, prompt, cached, tenant=""):
        self.service.tenant(tenant).observe(wire.ObserveIn(answer.ticket, wire.UsageIn(prompt, cached)))

    def samples(self):
        return parsed(asyncio.run(exposition.text(self.hub, self.metrics)))

    def value(self, name, **labels):
        return self.samples()[name, tuple(sorted(labels.items()))]

    def call(self, path, caller=None):
        operation = next(operation for operation in OPERATIONS if operation.path == path)
        return asyncio.run(operation.handler(Call(self.hub, caller or Caller(operator=True), None, b"", {}, {})))


def parsed(raw):
    families = text_string_to_metric_families(raw.decode())
    return {
        (sample.name.removeprefix("contextpilot_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def label_values(samples, label):
    return {value for _, labels in samples for name, value in labels if name == label}


requests_ = st.lists(
    st.tuples(
        st.lists(st.integers(0, 12), unique=True, max_size=8),
        st.sampled_from(["", "acme"]),
        st.sampled_from([None, "e1", "e2"]),
        st.one_of(st.none(), st.tuples(st.integers(0, 500) | st.none(), st.integers(0, 500) | st.none())),
    ),
    max_size=25,
)


@given(requests_)
def test_counters_are_the_sums_of_what_each_tenant_is_told(requests):
    world = World()
    for ids, tenant, engine, report in requests:
        answer = world.align(ids, tenant, engine=engine)
        if report is not None:
            world.observe(answer, *report, tenant)
    samples = world.samples()
    stats = [tenant.stats() for tenant in world.service.tenants.values()]

    def total(name):
        return sum(value for (found, _), value in samples.items() if found == f"{name}_total")

    assert total("requests") == sum(one.requests for one in stats)
    assert total("requests_changed") == sum(one.changed for one in stats)
    assert total("prompt_tokens") == sum(one.block_tokens for one in stats)
    assert total("predicted_cached_tokens") == sum(one.predicted_cached_tokens for one in stats)
    assert total("retrieved_cached_tokens") == sum(one.retrieved_cached_tokens for one in stats)
    complete = [report for *_, report in requests if report is not None and None not in report]
    assert total("usage_reports") == len(complete)
    assert total("reported_prompt_tokens") == sum(prompt for prompt, _ in complete)
    assert total("reported_cached_tokens") == sum(cached for _, cached in complete)
    assert total("cached_not_reported") == sum(one.observed for one in stats) - len(complete)
    assert samples["blocks_displaced_count", ()] == len(requests)
    assert samples["index_blocks", ()] == sum(one.tree_blocks for one in stats)
    rules = [item for one in stats for item in one.rules.items()]
    for rule in {rule for rule, _ in rules}:
        assert samples["requests_total", (("outcome", rule),)] == sum(count for of, count in rules if of == rule)


def test_a_report_without_cached_tokens_is_no_zero():
    world = World()
    world.observe(world.align([1, 2]), 100, None)
    world.observe(world.align([1, 2]), 100, 40)
    assert world.value("cached_not_reported_total", engine="") == 1
    assert world.value("reported_prompt_tokens_total", engine="") == 100
    assert world.value("reported_cached_tokens_total", engine="") == 40
    assert world.value("reported_predicted_tokens_total", engine="") == 23  # of the second request alone


def test_each_request_is_of_the_minute_in_which_it_came():
    world = World()
    world.now = 60_000.0
    world.align([1])
    world.now += 59
    world.align([1])
    world.now += 1
    world.metrics.took(ALIGN, 0.1, 400, "malformed")
    world.align([1])
    world.now += 600
    minutes = world.metrics.hour.minutes()
    assert [(minute.number, sum(tally.requests for tally in minute.rows.values())) for minute in minutes] == [
        (1_000, 2),
        (1_001, 1),
        (1_011, 0),
    ]
    assert minutes[1].errors == {"malformed": 1}


def test_what_somebody_looked_at_is_not_counted_twice():
    world = World()
    for number in range(3):
        world.align([number], engine="e")
        assert world.metrics.tallies["", "e"].requests == number + 1
        assert world.metrics.engines.of("")["e"].tally.requests == number + 1
        assert sum(tally.requests for tally in world.metrics.hour.minutes()[-1].rows.values()) == number + 1
    assert world.metrics.engines.of("")["e"].reported_at is None
    world.observe(world.align([1], engine="e"), 10, 5)
    reported = world.now
    world.now += 100
    assert world.metrics.engines.of("")["e"].reported_at == reported


def test_displaced_blocks_and_tokens_of_blocks_given_before():
    world = World()
    first = world.align([1, 2, 3], conversation=wire.TurnIn("c"))
    world.align([3, 2, 1])  # put back into 1, 2, 3: the middle one stays
    assert world.value("blocks_displaced_sum") == 2
    world.align([1, 9], conversation=wire.TurnIn("c", first.turn, 4))
    assert world.value("dedup_tokens_saved_total", engine="") == 11


def test_no_name_of_a_tenant_is_seen_unless_it_is_asked_for_and_then_a_hash():
    quiet, told, other = World(), World(tenant_labels=True), World("another secret", tenant_labels=True)
    for world in (quiet, told, other):
        world.align([1], "acme-secret-name", namespace=wire.NamespaceIn(tenant="their customer"))
    for world in (quiet, told, other):
        text = repr(world.samples())
        assert "acme" not in text
        assert "customer" not in text
    assert not label_values(quiet.samples(), "tenant")
    labels = [label_values(world.samples(), "tenant") for world in (told, other)]
    assert all(len(names) == 1 and len(min(names)) == 12 for names in labels)
    assert labels[0] != labels[1], "without the secret nobody can tell"


def test_clients_cannot_multiply_labels():
    world = World(tenant_labels=True)
    for number in range(40):
        world.align([1], "greedy", engine=f"e{number}")
    mine = label_values(world.samples(), "engine")
    assert len(mine) == 17
    assert "other" in mine
    for tenant in range(30):
        for number in range(5):
            world.align([1], f"t{tenant}", engine=f"{tenant}-{number}")
    assert len(label_values(world.samples(), "engine")) == 65
    assert world.value("prompt_tokens_total", engine="e3", tenant=world.metrics._tenant_label("greedy")) == 11
    for number in range(3_000):
        world.metrics.took(f"GET /{number}", 0.1, 200)
    assert len(label_values(world.samples(), "operation")) <= 101


def test_engines_names_are_their_tenants_own_where_anybody_may_read_metrics():
    world = World(operator_metrics=False)
    world.align([1], "acme", engine="acme's engine")
    assert label_values(world.samples(), "engine") == {""}


@pytest.mark.parametrize("name", ['e"} 1\ncontextpilot_ready 7\\', "a\x00b", "\r\x85\u2028", "x" * 256])
def test_hostile_names_stay_within_their_label(name):
    world = World()
    world.align([1], engine=name)
    raw = asyncio.run(exposition.text(world.hub, world.metrics)).decode()
    assert set(raw) - {"\n"} == {letter for letter in raw if letter.isprintable()}
    (label,) = label_values(parsed(raw.encode()), "engine")
    assert label[:1] in {name[:1], "\\"}
    assert world.value("prompt_tokens_total", engine=label) == 11
    assert world.value("ready") == 1


def test_everything_that_was_promised_has_a_name_and_nothing_is_in_the_global_registry():
    world = World()
    world.align([1])
    world.metrics.took(ALIGN, 0.003, 200)
    world.metrics.took(ALIGN, 0.003, 422, "unusable")
    world.metrics.planned("done", 3.0)
    world.metrics.snapshot_saved(0.5)
    world.metrics.snapshot_failed()
    world.now += 60
    raw = asyncio.run(exposition.text(world.hub, world.metrics)).decode()
    for name in NAMES:
        assert f"# TYPE contextpilot_{name} " in raw or f"# TYPE contextpilot_{name}_total " in raw, name
    samples = parsed(raw.encode())
    assert samples["align_seconds_bucket", (("le", "0.0025"),)] == 0
    assert samples["align_seconds_bucket", (("le", "0.005"),)] == 2
    assert samples["http_responses_total", (("operation", ALIGN), ("status", "4xx"))] == 1
    assert samples["rejected_total", (("kind", "unusable"),)] == 1
    assert samples["requests_total", (("outcome", "unusable"),)] == 1
    assert samples["plan_duration_seconds_sum", ()] == 3
    assert samples["snapshot_age_seconds", ()] == 60
    assert samples["snapshot_seconds", ()] == 0.5
    assert samples["snapshot_failures_total", ()] == 1
    assert not [family.name for family in REGISTRY.collect() if "contextpilot" in family.name]


def test_before_the_first_snapshot_there_is_no_age():
    assert ("snapshot_age_seconds", ()) not in World().samples()


@pytest.mark.parametrize("operator_metrics", [True, False])
def test_who_may_read_metrics(operator_metrics):
    world = World(operator_metrics=operator_metrics)
    assert world.call("/metrics").status == 200
    if operator_metrics:
        with pytest.raises(Forbidden):
            world.call("/metrics", Caller("acme"))
    else:
        assert world.call("/metrics", Caller("acme")).status == 200


def test_only_operators_read_metrics_for_free():
    world = World(operator_metrics=False, rate=0.001, burst=2)
    world.hub.rates = Rates(world.hub.settings, lambda: world.now)
    for _ in range(10):
        world.call("/metrics")
    for _ in range(2):
        world.call("/metrics", Caller("acme"))
    with pytest.raises(TooMany):
        world.call("/metrics", Caller("acme"))


def test_without_metrics_nothing_is_made_up():
    world = World()
    world.hub.metrics = None
    for path in ("/", "/metrics", "/v1/engines"):
        with pytest.raises(NotFound):
            world.call(path)


def test_over_http_each_sees_what_is_theirs(tmp_path):
    path = tmp_path / "keys.json"
    keys = {name: new_key() for name in ("acme", "globex", "root")}
    with changing(path, create=True) as content:
        for name, (_, entry) in keys.items():
            content.tenants[name] = TenantEntry([entry], operator=name == "root")
    acme, globex, root = (key for key, _ in keys.values())
    body = {"blocks": [{"id": "a", "tokens": 50}], "engine": "vllm-acme"}
    with serving(keys=path) as service:
        ticket = service.ask("POST", "/v1/align", body, acme).json()["ticket"]
        usage = {"prompt_tokens": 60, "cached_tokens": 16}
        assert service.ask("POST", "/v1/observe", {"ticket": ticket, "usage": usage}, acme).status == 200
        assert service.ask("POST", "/v1/align", b"{", acme).status == 400
        engines = service.ask("GET", "/v1/engines", key=acme).json()["engines"]
        assert [(engine["name"], engine["level"], engine["reported_cached_tokens"]) for engine in engines] == [
            ("vllm-acme", "usage", 16)
        ]
        assert service.ask("GET", "/v1/engines", key=globex).json() == {"engines": []}
        for path_ in ("/", "/metrics"):
            assert service.ask("GET", path_).status == 401
            assert service.ask("GET", path_, key=acme).status == 403
        reply = service.ask("GET", "/metrics", key=root)
        assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        samples = parsed(reply.body)
        assert samples["reported_cached_tokens_total", (("engine", "vllm-acme"),)] == 16
        assert samples["http_responses_total", (("operation", "POST /v1/align"), ("status", "2xx"))] == 1
        assert samples["rejected_total", (("kind", "forbidden"),)] == 2
        assert b"globex" not in reply.body
        assert samples["process_resident_memory_bytes", ()] > 0
