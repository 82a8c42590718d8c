"""The status page: what it says is so, what it does not know it does not say, and what clients name stays text."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timezone
from html.parser import HTMLParser
from pathlib import Path

import pytest

from contextpilot_rag.dedup.units import normal
from contextpilot_rag.identity import block_key
from contextpilot_rag.remote import wire
from contextpilot_rag.service import page
from contextpilot_rag.service.chart import HEIGHT, WIDTH, Chart
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.exposition import Sizes
from contextpilot_rag.service.metrics import Metrics
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.service.tally import Tally
from tests.service.harness import serving

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
TEMPLATES = Path(page.__file__).parent / "templates"
_VOID = {"meta", "link", "br", "hr", "img", "input"}


class World:
    def __init__(self):
        self.now = 600_000.0
        settings = ServiceSettings()
        self.metrics = Metrics(settings, "s", lambda: self.now)
        self.service = Service(settings, "s", lambda: self.now, [self.metrics])

    def align(self, ids, tenant="", **given):
        blocks = [wire.BlockIn(id=name, tokens=100) for name in ids]
        return self.service.tenant(tenant).align(wire.AlignIn(blocks, **given))

    def observe(self, answer, prompt, cached):
        self.service.tenant("").observe(wire.ObserveIn(answer.ticket, wire.UsageIn(prompt, cached)))

    def page(self, sizes=None, keyed=False, keeps=False):
        taken = page.Figures.of(self.metrics, sizes or Sizes(state="ready"), AT, keyed=keyed, keeps=keeps)
        return page.render(asyncio.run(taken)).decode()


class Read(HTMLParser):
    """A page's text, tags and attributes; fails where elements do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.said = [], [], []
        self.feed(text)
        assert not self.open, self.open
        self.text = re.sub(r"\s+", " ", " ".join(self.said))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.said.append(data)


def test_it_says_what_happened():
    world = World()
    world.align("abcd", engine="vllm-0", namespace=wire.NamespaceIn(model="llama", corpus="handbook"))
    second = world.align("dcba", engine="vllm-0", namespace=wire.NamespaceIn(model="llama", corpus="handbook"))
    world.observe(second, 500, 320)
    world.metrics.took("POST /v1/align", 0.001, 429, "too-many")
    world.now += 7
    read = Read(world.page(Sizes(2, 3, 4, 5_000, 6, 7, {"running": 1}, "ready")))
    assert "50 % of 800 block tokens" in read.text  # 400 of 800 predicted
    assert "in the retriever\u2019s 0%" in read.text
    assert "of whole prompts 64%" in read.text
    assert "Prefill saved 400" in read.text
    assert "Put in another order 50%" in read.text
    assert "Calibration 80% reported over predicted, 1 reports" in read.text
    assert "llama · handbook 2 800 0% 50% 64%" in read.text
    assert "vllm-0 usage reports 7 s ago 2 50% 64% 80%" in read.text
    assert "a llama · handbook 4 1 400" in read.text
    assert "Tokens they stand for 5 k" in read.text
    assert "Plans running 1" in read.text
    assert "too-many 1" in read.text
    assert "As of 2026-01-02 03:04:05 UTC" in read.text


def test_it_says_what_it_does_not_know():
    read = Read(World().page())
    for words in (
        "No traffic",
        "No requests in the last hour",
        "No namespace was used in the last hour",
        "No request has shared a prefix",
        "Every request was answered as it was asked",
        "nothing reported yet",
        "none: no state folder is set",
    ):
        assert words in read.text
    assert "%" not in re.sub(r"(100|50|0)%", "", read.text), "no share of nothing"


def test_nothing_reported_is_no_zero():
    world = World()
    first = world.align("ab")
    assert "Nothing reported yet: send each answer\u2019s usage to POST /v1/observe" in Read(world.page()).text
    assert "no reports yet" in Read(world.page()).text
    world.observe(first, 100, None)
    read = Read(world.page())
    assert "1 usage reports came, but none says how many tokens were cached" in read.text
    assert "reports without cached tokens" in read.text
    assert "of whole prompts —" in read.text


def test_blocks_that_go_by_a_hash_can_be_found():
    world = World()
    key = block_key(normal("a text "))
    for _ in range(2):
        world.service.tenant("").align(wire.AlignIn([wire.BlockIn(text="a text ")], wire.NamespaceIn(corpus="c")))
    text = Read(world.page()).text
    assert f"{key.hex()[:10]} …" in text
    assert "block_key(normal(text)).hex()" in text


def test_reports_that_no_longer_come_are_no_reports_that_never_came():
    world = World()
    first = world.align("ab")
    world.observe(first, 100, 50)
    assert "usage reports 0 s ago" in Read(world.page()).text
    world.now += 3_000
    world.align("ab")
    world.now += 700
    assert "no reports any more last" in Read(world.page()).text


def test_tenants_are_named_where_there_are_keys():
    world = World()
    world.align("ab", "acme")
    world.align("ba", "acme")
    assert "acme" in Read(world.page(keyed=True)).text
    assert "acme" not in Read(world.page()).text


def test_an_hour_later_it_is_gone():
    world = World()
    world.align("ab", namespace=wire.NamespaceIn(model="llama"))
    world.align("ba", namespace=wire.NamespaceIn(model="llama"))
    world.now += 3_700
    assert "llama" not in world.page()


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "</style><style>*{display:none}",
    "\u202egnp.\u2066doc",
    "a\x00b\nc\ud800",
    "x" * 250,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_text(name):
    world = World()
    plain = World()
    for one, given in ((world, name), (plain, "plain")):
        for order in ([given, "b"], ["b", given]):
            space = wire.NamespaceIn(given, given, given)
            one.align(order, given, engine=given, namespace=space)
    hostile = world.page(keyed=True)
    assert [tag for tag, _ in Read(hostile).tags] == [tag for tag, _ in Read(plain.page(keyed=True)).tags]
    assert "alert" not in "".join(str(attributes) for _, attributes in Read(hostile).tags)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\ud800]", hostile)


def test_it_needs_nothing_else():
    world = World()
    world.align("ab")
    text = world.page()
    read = Read(text)
    assert not [tag for tag, _ in read.tags if tag in {"script", "img", "iframe", "object", "form"}]
    for _, attributes in read.tags:
        for name, value in attributes.items():
            assert name == "href" or not re.search(r"https?://|//", value or ""), (name, value)
            assert not name.startswith("on")
            if name == "href":
                assert value.startswith(("data:", "/"))
    assert "url(" not in text
    assert "@import" not in text


def test_it_can_be_read_by_those_who_cannot_see_it():
    world = World()
    world.align("ab", engine="e")
    world.align("ba", engine="e")
    tags = Read(world.page()).tags
    names = [tag for tag, _ in tags]
    assert [names.count(landmark) for landmark in ("header", "main", "footer", "h1")] == [1, 1, 1, 1]
    assert ("html", {"lang": "en"}) in tags
    headings = {attributes["id"] for tag, attributes in tags if tag == "h2"}
    assert {attributes["aria-labelledby"] for tag, attributes in tags if tag in {"section", "table"}} <= headings
    assert all(attributes.get("scope") in {"col", "row"} for tag, attributes in tags if tag == "th")
    assert all(attributes["aria-label"] for tag, attributes in tags if tag == "svg")


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1])
def test_text_stands_out_from_its_ground_in_light_and_in_dark(scheme):
    style = (TEMPLATES / "status.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", style.split("prefers-color-scheme: dark")[scheme]))
    for ink in ("ink", "quiet", "accent", "warn"):
        for ground in ("paper", "card"):
            light, dark = sorted((luminance(colours[ink]), luminance(colours[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)


def test_the_chart_stays_in_its_box_and_leaves_gaps():
    minutes = [Tally() for _ in range(60)]
    minutes[3] = Tally(requests=5, block_tokens=100, predicted=50, reported_prompt=10, reported_cached=40)
    for place in (10, 11):
        minutes[place] = Tally(requests=50, block_tokens=100, predicted=100)
    chart = Chart.of(minutes)
    assert chart.line.count("M") == 2
    assert chart.area.count("Z") == 2
    assert chart.most == 50
    points = re.findall(r"(-?[\d.]+),(-?[\d.]+)", chart.line + chart.baseline + chart.reported)
    assert all(0 <= float(x) <= WIDTH and 0 <= float(y) <= HEIGHT for x, y in points)
    assert [height for _, height in chart.bars] == [10.0, 100.0, 100.0]
    assert Chart.of([Tally() for _ in range(60)]) == Chart("", "", "", "", [], 0)


def test_over_http_it_is_a_page_that_may_do_nothing():
    with serving() as service:
        body = {"blocks": [{"id": "a", "tokens": 50}], "namespace": {"model": "a model"}}
        service.ask("POST", "/v1/align", body)
        reply = service.ask("GET", "/")
        assert reply.status == 200
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        assert reply.headers["content-security-policy"].startswith("default-src 'none'; style-src 'unsafe-inline'")
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "a model" in Read(reply.body.decode()).text
        head = service.ask("HEAD", "/")
        assert (head.status, head.body) == (200, b"")
